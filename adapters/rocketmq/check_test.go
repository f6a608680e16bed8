package rocketmq_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/rocketmq"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/remoting"
)

// runFails returns what Run says.
func runFails(t testing.TB, cfg rocketmq.Config) string {
	t.Helper()
	err := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), new(effects).apply)).wait()
	require.Error(t, err)
	return err.Error()
}

func (w world) setGroup(t testing.TB, retryQueues int, enabled bool) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"groupName": w.group, "consumeEnable": enabled, "consumeFromMinEnable": true, "retryQueueNums": retryQueues, "retryMaxTimes": 16})
	require.NoError(t, err)
	_, err = w.call(w.broker(t), remoting.UpdateGroup, nil, string(body))
	require.NoError(t, err)
}

func TestTrap43_AGroupThatWouldLoseFailedMessages_IsRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.setGroup(t, 0, true)
	require.Contains(t, runFails(t, w.config(t)), "retryQueueNums=0")
}

func TestTrap50_AGroupThatGetsNoMessages_IsRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.setGroup(t, 1, false)
	require.Contains(t, runFails(t, w.config(t)), "consumeEnable=false")
}

func TestTrap51_AMemberWithOtherTopics_IsRefused(t *testing.T) {
	w := newWorld(t, 1)
	other := w
	other.topic += "-b"
	other.createTopic(t, other.topic, 1)
	a := start(t, w.config(t), newPipe(t, newGuard(t, "shop", nil), new(effects).apply))
	eventually(t, "the first is a member", func() bool { return len(a.State().Assigned) > 0 })
	require.Contains(t, runFails(t, other.config(t)), "another member of group \""+w.group+"\" consumes")
	require.NoError(t, a.stop())
}

// Trap 41: the client cannot be started again after that, so each Run has a client of its own.
func TestTrap41_AMissingTopic_IsNamedWithItsCommand_AndRunCanBeCalledAgain(t *testing.T) {
	w := newWorld(t, 1)
	later := w
	later.topic += "-b"
	var e effects
	c, err := rocketmq.NewConsumer(later.config(t), newPipe(t, newGuard(t, "shop", nil), e.apply))
	require.NoError(t, err)
	err = startConsumer(t, c).wait()
	require.ErrorContains(t, err, "rocketmq: \""+later.topic+"\": topic does not exist; create it: mqadmin updateTopic -n "+w.names)
	require.Equal(t, rocketmq.Halted, c.State().Phase)
	later.createTopic(t, later.topic, 1)
	later.send(t, record{"k", "id-0", "x"})
	r := startConsumer(t, c)
	eventually(t, "it took effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
}

func TestADeadNameServer_IsNamed_AndAnotherOneIsAsked(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := l.Addr().String()
	require.NoError(t, l.Close())
	require.Contains(t, runFails(t, rocketmq.Config{NameServers: []string{dead}, Topics: []string{"orders"}, Group: "g"}), "rocketmq: no name server answers: "+dead)

	w := newWorld(t, 1)
	w.send(t, record{"k", "id-0", "x"})
	cfg := w.config(t)
	cfg.NameServers = []string{dead, w.names}
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "it took effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
}

func TestNoCreate_MissingThingsAreErrorsThatSayTheCommand(t *testing.T) {
	w := newWorld(t, 1)
	cfg := w.config(t)
	cfg.NoCreate = true
	require.Contains(t, runFails(t, cfg), "create it: mqadmin updateSubGroup")
	w.setGroup(t, 1, true)
	require.Contains(t, runFails(t, cfg), "-t '%RETRY%"+w.group+"'")
	w.createTopic(t, "%RETRY%"+w.group, 1)
	require.Contains(t, runFails(t, cfg), "-t '%DLQ%"+w.group+"'")
	w.createTopic(t, "%DLQ%"+w.group, 1)
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), new(effects).apply))
	eventually(t, "it runs", func() bool { return r.State().Phase == rocketmq.Running })
	require.NoError(t, r.stop())
}

func TestTrap40_HostNamesAreTaken(t *testing.T) {
	w := newWorld(t, 1)
	w.send(t, record{"k", "id-0", "x"})
	cfg := w.config(t)
	cfg.NameServers = []string{strings.Replace(w.names, "127.0.0.1", "localhost", 1)}
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "it took effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
}

func TestFilters_ChooseByTagAndByProperty(t *testing.T) {
	for name, filter := range map[string]rocketmq.Filter{"tags": {Tags: "paid || refunded"}, "sql": {SQL: "quantity > 10"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			for i, tag := range []string{"new", "paid"} { // in one queue, in this order
				m := message(w.topic, record{"k", fmt.Sprint("id-", i), "x"})
				m.WithTag(tag).WithProperty("quantity", map[string]string{"new": "1", "paid": "11"}[tag])
				w.sendRaw(t, m)
			}
			cfg := w.config(t)
			cfg.Filters = map[string]rocketmq.Filter{w.topic: filter}
			var e effects
			r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
			eventually(t, "something took effect", func() bool { return e.len() > 0 })
			require.NoError(t, r.stop())
			require.Len(t, e.all(), 1)
			require.Equal(t, "id-1", e.all()[0].id)
			w.requireCommitted(t, 1, 2)
		})
	}
}

func TestNamespace_IsPartOfEveryName_AndNotShown(t *testing.T) {
	w := newWorld(t, 1)
	inside := w
	inside.topic = "ns%" + w.topic
	inside.createTopic(t, inside.topic, 1)
	inside.send(t, record{"k", "id-0", "x"}, record{"k", "id-1", "x"})
	cfg := w.config(t)
	cfg.Namespace = "ns"
	var e, calls effects
	h := failing(&e, map[string]int{"id-0": 1, "id-1": 100}, &calls)
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), h, oneInPlace(time.Millisecond), func(c *consumer.Config) { c.Policy.Retry.Attempts = 2 }))
	q, err := rocketmq.OpenDeadLetters(cfg, "%DLQ%"+w.group)
	require.NoError(t, err)
	defer q.Close()
	eventually(t, "one took effect after a retry", func() bool { return e.len() == 1 })
	require.Equal(t, w.topic, e.all()[0].m.Origin.Topic)
	require.Equal(t, 1, e.all()[0].m.Redeliveries)
	eventually(t, "the other is a dead letter", func() bool { return len(list(t, q)) == 1 })
	require.Equal(t, w.topic, list(t, q)[0].Message.Origin.Topic)
	require.NoError(t, r.stop())
	_, err = w.call(w.names, remoting.RouteOfTopic, map[string]string{"topic": "%DLQ%ns%" + w.group}, "")
	require.NoError(t, err)
}

func TestIDFromKeys_OneKeyIsTheId_AndSeveralAreNone(t *testing.T) {
	w := newWorld(t, 1)
	for _, keys := range [][]string{{"a"}, {"b", "c"}, nil} {
		m := primitive.NewMessage(w.topic, []byte("x"))
		if keys != nil {
			m.WithKeys(keys)
		}
		w.sendRaw(t, m)
	}
	var e effects
	cfg := w.config(t)
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply, func(c *consumer.Config) { c.ID = rocketmq.IDFromKeysOrBroker() }))
	q, err := rocketmq.OpenDeadLetters(cfg, "%DLQ%"+w.group)
	require.NoError(t, err)
	defer q.Close()
	eventually(t, "two took effect", func() bool { return e.len() == 2 })
	eventually(t, "one is a dead letter", func() bool { return len(list(t, q)) == 1 })
	require.NoError(t, r.stop())
	letter := list(t, q)[0]
	require.Equal(t, consumer.ReasonMissingID, letter.Reason)
	require.Contains(t, letter.Error, "2 KEYS")
	ids := map[string]bool{}
	for _, x := range e.all() {
		ids[x.id] = true
		if x.id != "a" {
			require.Equal(t, x.m.BrokerID, x.id)
		}
	}
	require.True(t, ids["a"])
	_, err = rocketmq.IDFromKeys()(&consumer.Message{})
	require.ErrorContains(t, err, "no KEYS")
}
