package kafka_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe/memstore"
)

func TestRun_Messages_TakeEffectOnceInTheOrderOfTheirKey(t *testing.T) {
	c := fake(t)
	recs := numbered(300, 17)
	produce(t, c.ListenAddrs(), "orders", recs...)
	var e effects
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.NoError(t, r.stop())
	e.once(t, recs)
	require.EqualValues(t, len(recs), sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)), "everything is committed when Run has returned")
}

func TestRun_ProducerThatSendsTwice_TakesEffectOnce(t *testing.T) {
	c := fake(t)
	recs := numbered(50, 5)
	produce(t, c.ListenAddrs(), "orders", recs...)
	produce(t, c.ListenAddrs(), "orders", recs...)
	var e effects
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "all settled", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)) == 100 })
	require.NoError(t, r.stop())
	e.once(t, recs)
}

func TestRun_ReplayFromTheBeginning_HasNoEffect(t *testing.T) {
	c := fake(t)
	recs := numbered(100, 7)
	produce(t, c.ListenAddrs(), "orders", recs...)
	log := memstore.NewLog()
	var e effects
	for _, group := range []string{"first", "second"} { // the second group reads everything again; the scope is the same
		cfg := config(t, c.ListenAddrs(), "orders")
		cfg.Group = group
		r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
		eventually(t, "all settled", func() bool { return sum(committed(t, c.ListenAddrs(), group, "orders", 3)) == 100 })
		require.NoError(t, r.stop())
	}
	e.once(t, recs)
}

func TestRun_SlowKey_DoesNotHoldTheOthers(t *testing.T) {
	c := fake(t)
	recs := numbered(60, 6)
	produce(t, c.ListenAddrs(), "orders", recs...)
	var e effects
	release := make(chan struct{})
	h := func(ctx context.Context, m *consumer.Message) error {
		if string(m.Key) == "k0" {
			<-release
		}
		return e.apply(ctx, m)
	}
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), h))
	eventually(t, "the effects of all other keys", func() bool { return e.len() == 50 })
	close(release)
	eventually(t, "the rest", func() bool { return e.len() == 60 })
	require.NoError(t, r.stop())
	e.once(t, recs)
}

func TestTrap16_StoppedWhileIdle_ReturnsAtOnce(t *testing.T) {
	c := fake(t)
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), new(effects).apply))
	r.assigned(3)
	begun := time.Now()
	require.NoError(t, r.stop())
	require.Less(t, time.Since(begun), 2*time.Second)
}

func TestTrap20_Metadata_IsAskedForOurTopicsOnly(t *testing.T) {
	c := fake(t)
	var all, ours atomic.Int64
	c.ControlKey(kmsg.Metadata.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if m, ok := req.(*kmsg.MetadataRequest); ok && m.Topics == nil {
			all.Add(1)
		} else {
			ours.Add(1)
		}
		return nil, nil, false
	})
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), new(effects).apply))
	r.assigned(3)
	begun := ours.Load()
	eventually(t, "the metadata is refreshed", func() bool { return ours.Load() > begun+3 })
	require.EqualValues(t, 1, all.Load(), "once, at the start, to find retry topics")
	require.NoError(t, r.stop())
}

func TestTrap14_StartLatest_IsCommittedBeforeTheFirstMessage(t *testing.T) {
	c := fake(t)
	produce(t, c.ListenAddrs(), "orders", numbered(30, 9)...)
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.Start = kafka.Latest
	log := memstore.NewLog()
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "the start is committed", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)) == 30 })
	require.NoError(t, r.stop())

	missed := []record{{"k1", "missed-1", "x"}, {"k2", "missed-2", "y"}} // while nobody consumes
	produce(t, c.ListenAddrs(), "orders", missed...)
	r = start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "what came meanwhile", func() bool { return e.len() == 2 })
	require.NoError(t, r.stop())
	e.once(t, missed)
}

func TestTrap14_StartEarliest_IsTheDefault(t *testing.T) {
	c := fake(t)
	produce(t, c.ListenAddrs(), "orders", numbered(5, 5)...)
	var e effects
	start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "what was there before", func() bool { return e.len() == 5 })
}

func TestRun_SeveralPipelines_EachGetsItsTopics(t *testing.T) {
	c := fake(t)
	require.NoError(t, c.CreateTopic("payments", 2, nil))
	orders, payments := numbered(20, 4), numbered(30, 4)
	produce(t, c.ListenAddrs(), "orders", orders...)
	produce(t, c.ListenAddrs(), "payments", payments...)
	var eo, ep effects
	g := newGuard(t, "shop", nil) // one guard: ids are kept apart by topic
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, g, eo.apply), kafka.Route{Topics: []string{"payments"}, Pipeline: newPipe(t, g, ep.apply)})
	eventually(t, "all effects", func() bool { return eo.len() == 20 && ep.len() == 30 })
	require.NoError(t, r.stop())
	eo.once(t, orders)
	ep.once(t, payments)
}

func TestRun_BatchHandler_GetsConsecutiveMessages(t *testing.T) {
	c := fake(t)
	recs := numbered(200, 20)
	produce(t, c.ListenAddrs(), "orders", recs...)
	var e effects
	var largest atomic.Int64
	p := newPipe(t, newGuard(t, "shop", nil), nil, func(cfg *consumer.Config) {
		cfg.Batch.Max = 10
		cfg.BatchHandler = func(_ context.Context, ms []*consumer.Message) error {
			largest.Store(max(largest.Load(), int64(len(ms))))
			for _, m := range ms {
				e.add(m)
			}
			return nil
		}
	})
	r := start(t, config(t, c.ListenAddrs(), "orders"), p)
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.NoError(t, r.stop())
	e.once(t, recs)
	require.LessOrEqual(t, largest.Load(), int64(10))
	require.Greater(t, largest.Load(), int64(1))
}

func TestFromKafka_OwnLoop_HasPositionHeadersAndRaw(t *testing.T) {
	m := message(record{"k", "id-1", "v"})
	m.Topic, m.Partition, m.Offset = "orders", 2, 7
	got := kafka.FromKafka(m)
	require.Equal(t, consumer.Position{Topic: "orders", Partition: 2, Offset: 7}, got.Position)
	require.Equal(t, got.Position, got.Origin)
	id, ok := got.Headers.Get(kafka.HeaderMessageID)
	require.True(t, ok)
	require.Equal(t, "id-1", id)
	require.Equal(t, -1, got.Redeliveries)
	require.Equal(t, m, got.Raw)
}

func TestWithID_SecondCall_ReplacesTheFirst(t *testing.T) {
	m := message(record{"k", "id-1", "v"})
	kafka.WithID(&m, "id-2")
	require.Len(t, m.Headers, 1)
	require.Equal(t, "id-2", string(m.Headers[0].Value))
}
