package kafka_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/testenv"
)

func tiers(attempts int, ds ...time.Duration) func(*consumer.Config) {
	return func(c *consumer.Config) {
		c.Policy.Order = consumer.OrderNone
		c.Policy.Retry.Attempts = attempts
		c.Policy.Retry.InPlace = 1
		c.Policy.Retry.Tiers = ds
	}
}

// throughTiers lets one message fail three times between messages that do not.
func throughTiers(t *testing.T, brokers []string, topic string, partitions int) {
	group := testenv.Name(t)
	recs := numbered(20, 20)
	produce(t, brokers, topic, recs...)
	var e effects
	var mu sync.Mutex
	var runs []time.Time
	var topics []string
	var attempts []int
	h := func(ctx context.Context, m *consumer.Message) error {
		if m.ID() != "id-7" {
			return e.apply(ctx, m)
		}
		mu.Lock()
		defer mu.Unlock()
		runs, topics, attempts = append(runs, time.Now()), append(topics, m.Topic), append(attempts, m.Claim().Attempt())
		if m.Origin.Topic != topic {
			return consumer.Permanent(errors.New("origin is lost: " + m.Origin.String()))
		}
		if len(runs) < 4 {
			return errStock
		}
		return e.apply(ctx, m)
	}
	cfg := config(t, brokers, topic)
	cfg.Group = group
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), h, tiers(10, 500*time.Millisecond, 1500*time.Millisecond)))
	eventually(t, "the others do not wait", func() bool { return e.len() >= 19 })
	eventually(t, "the source is acknowledged", func() bool { return sum(committed(t, brokers, group, topic, partitions)) == 20 })
	eventually(t, "all effects", func() bool { return e.len() == 20 })
	require.NoError(t, r.stop())
	e.once(t, recs)
	first, second := group+".retry.500ms", group+".retry.1.5s"
	require.Equal(t, []string{topic, first, second, second}, topics)
	require.Equal(t, []int{1, 2, 3, 4}, attempts, "failures are counted with the claim")
	require.GreaterOrEqual(t, runs[1].Sub(runs[0]), 450*time.Millisecond)
	require.GreaterOrEqual(t, runs[2].Sub(runs[1]), 1400*time.Millisecond)
	require.GreaterOrEqual(t, runs[3].Sub(runs[2]), 1400*time.Millisecond)
	require.Less(t, runs[3].Sub(runs[0]), 12*time.Second)
}

func TestRetryTopics_Failure_WaitsInTiersWithoutHoldingTheOthers(t *testing.T) {
	c := fake(t)
	throughTiers(t, c.ListenAddrs(), "orders", 3)
}

func TestRetryTopics_RealKafka(t *testing.T) {
	brokers := realBrokers(t)
	throughTiers(t, brokers, newTopic(t, brokers, testenv.Name(t), 3), 3)
}

func TestRetryTopics_Exhausted_EndsAsOneDeadLetterOfItsOrigin(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	produce(t, c.ListenAddrs(), "orders", record{"k", "id-0", "v"})
	var runs atomic.Int64
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), func(context.Context, *consumer.Message) error {
		runs.Add(1)
		return errStock
	}, tiers(3, 100*time.Millisecond)))
	d := listed(t, c.ListenAddrs(), "shop.dlq", 1)[0]
	eventually(t, "the retry topic is settled", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "shop.retry.100ms", 1)) == 2 })
	require.NoError(t, r.stop())
	require.EqualValues(t, 3, runs.Load())
	require.Equal(t, 3, d.Attempts)
	require.Equal(t, consumer.Position{Topic: "orders"}, d.Message.Origin)
	require.Equal(t, "orders", d.Namespace)
}

func TestRetryTopics_UnknownTier_IsConsumedToo(t *testing.T) {
	c := fake(t)
	log := memstore.NewLog()
	produce(t, c.ListenAddrs(), "orders", record{"k", "id-0", "v"})
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", log), permanentlyFailing, tiers(5, 3*time.Second)))
	eventually(t, "it waits", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)) == 1 })
	require.NoError(t, r.stop())

	var e effects // another configuration: no tiers at all
	r = start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "its effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
	require.Equal(t, "shop.retry.3s", e.all()[0].at.Topic)
}

func permanentlyFailing(context.Context, *consumer.Message) error { return errStock }

func TestRetryTopics_HeadNotDue_PausesTheFetchAndHoldsNothing(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	log := memstore.NewLog()
	produce(t, c.ListenAddrs(), "orders", record{"k", "id-0", "v"})
	g := newGuard(t, "shop", log)
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, g, permanentlyFailing, tiers(5, time.Hour)))
	eventually(t, "it waits", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)) == 1 })
	var retryFetches atomic.Int64
	c.ControlKey(kmsg.Fetch.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		for _, rt := range req.(*kmsg.FetchRequest).Topics {
			if rt.Topic == "shop.retry.1h" {
				retryFetches.Add(1)
			}
		}
		return nil, nil, false
	})
	heartbeats := observe(c, kmsg.Heartbeat)
	eventually(t, "some time has passed", func() bool { return heartbeats() >= 6 })
	require.LessOrEqual(t, retryFetches.Load(), int64(1))
	key, err := g.Key("orders", "id-0")
	require.NoError(t, err)
	rec, err := g.Inspect(context.Background(), key)
	require.NoError(t, err)
	require.Equal(t, dedupe.StateFree, rec.State, "no claim")
	require.Equal(t, 1, rec.Failures)
	begun := time.Now()
	require.NoError(t, r.stop())
	require.Less(t, time.Since(begun), 3*time.Second)
	require.Equal(t, []int64{0}, committed(t, c.ListenAddrs(), "shop", "shop.retry.1h", 1), "it is still there for the next owner")
}

func TestRetryTopics_WriteFails_SourceIsNotAcknowledgedAndTheHandlerNotRunAgain(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	produce(t, c.ListenAddrs(), "orders", record{"k", "id-0", "v"})
	var runs atomic.Int64
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), func(context.Context, *consumer.Message) error {
		runs.Add(1)
		return errStock
	}, tiers(5, time.Hour)))
	h := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop.retry.1h", Count: -1})
	produces := observe(c, kmsg.Produce)
	eventually(t, "the write is tried again", func() bool { return produces() >= 4 })
	h.Remove()
	eventually(t, "the source is acknowledged", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)) == 1 })
	require.NoError(t, r.stop())
	require.EqualValues(t, 1, runs.Load())
}

func TestSideTopics_AreMadeWithTheSourcesPartitionsAndRoomForHeaders(t *testing.T) {
	brokers := realBrokers(t)
	topic := newTopic(t, brokers, testenv.Name(t), 5, entry("max.message.bytes", "2000000"), entry("retention.ms", "3600000"))
	cfg := config(t, brokers, topic)
	cfg.Group = testenv.Name(t)
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), new(effects).apply, tiers(5, time.Minute)))
	r.assigned(10)
	require.NoError(t, r.stop())
	for name, retention := range map[string]string{cfg.Group + ".dlq": "-1", cfg.Group + ".retry.1m": "3660000"} {
		got := settingsOf(t, brokers, name)
		require.Equal(t, "2065536", got["max.message.bytes"], name)
		require.Equal(t, retention, got["retention.ms"], name)
		require.Equal(t, "delete", got["cleanup.policy"], name)
		require.Equal(t, "5", got["partitions"], name)
	}
}

func TestSideTopics_NoCreate_SaysTheCommand(t *testing.T) {
	c := fake(t)
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.NoCreate = true
	require.Contains(t, refused(t, cfg), `kafka: topic "shop.dlq" is missing (Config.NoCreate is set); create it: kafka-topics.sh --bootstrap-server `+c.ListenAddrs()[0]+` --create --topic shop.dlq --partitions 3`)
	require.Nil(t, c.TopicInfo("shop.dlq"))
}

func TestSideTopics_CompactedDeadLetters_AreRefused(t *testing.T) {
	c := fake(t)
	require.NoError(t, c.CreateTopic("shop.dlq", 1, map[string]string{"cleanup.policy": "compact"}))
	require.Contains(t, refused(t, config(t, c.ListenAddrs(), "orders")), `topic "shop.dlq" is compacted`)
}

func TestRetention_TopicRemembersLongerThanTheGuard_IsRefused(t *testing.T) {
	brokers := realBrokers(t)
	topic := newTopic(t, brokers, testenv.Name(t), 1, entry("retention.ms", "2592000000")) // 30 days, guard: 15
	cfg := config(t, brokers, topic)
	cfg.Group = testenv.Name(t)
	require.Contains(t, refused(t, cfg), "retention-below-horizon")
}

// settingsOf reads the settings of a topic, and its number of partitions.
func settingsOf(t *testing.T, brokers []string, topic string) map[string]string {
	t.Helper()
	cl, closeIt := client(brokers, topic)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := cl.DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic}}})
	require.NoError(t, err)
	out := map[string]string{}
	for _, e := range res.Resources[0].ConfigEntries {
		out[e.ConfigName] = e.ConfigValue
	}
	meta, err := cl.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
	require.NoError(t, err)
	out["partitions"] = strconv.Itoa(len(meta.Topics[0].Partitions))
	return out
}

func TestRetryTopics_DeadLettersOfAGroupWithOurPrefix_AreNotConsumed(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders", "invoices"))
	other := config(t, c.ListenAddrs(), "invoices")
	other.Group = "shop.retry"
	r := start(t, other, newPipe(t, newGuard(t, "invoicing", nil), permanent))
	produce(t, c.ListenAddrs(), "invoices", record{"k", "invoice-1", "v"})
	listed(t, c.ListenAddrs(), "shop.retry.dlq", 1)
	require.NoError(t, r.stop())

	var e effects
	r = start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply))
	produce(t, c.ListenAddrs(), "orders", record{"k", "order-1", "v"})
	eventually(t, "the order", func() bool { return e.len() >= 1 })
	require.Equal(t, []kafka.TopicPartition{{Topic: "orders"}}, r.State().Assigned)
	require.NoError(t, r.stop())
	require.Equal(t, []string{"order-1"}, e.ids())
}

// A record on a retry topic that another scope marked as a copy is not believed: it cannot take the identity of one of our messages.
func TestRetryTopics_CopyOfAnotherScope_KeepsItsOwnIdentity(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders", "shop.retry.10ms"))
	log := memstore.NewLog()
	var e effects
	var mu sync.Mutex
	namespaces := map[string]string{}
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", log), func(ctx context.Context, m *consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		namespaces[m.ID()] = m.Namespace()
		return e.apply(ctx, m)
	}))
	forged := func(id, scope string) kafkago.Message {
		m := message(record{"k", id, "v"})
		for name, value := range map[string]string{consumer.HeaderScope: scope, consumer.HeaderID: "order-1", consumer.HeaderNamespace: "orders", consumer.HeaderOrigin: "orders%2F0@0"} {
			m.Headers = append(m.Headers, kafkago.Header{Key: name, Value: []byte(value)})
		}
		return m
	}
	require.NoError(t, writer(t, c.ListenAddrs(), "shop.retry.10ms").WriteMessages(context.Background(), forged("theirs", "invoicing")))
	eventually(t, "it is consumed", func() bool { return e.len() == 1 })
	produce(t, c.ListenAddrs(), "orders", record{"k", "order-1", "v"})
	eventually(t, "the order itself", func() bool { return e.len() == 2 })
	require.NoError(t, writer(t, c.ListenAddrs(), "shop.retry.10ms").WriteMessages(context.Background(), forged("x", "shop")))
	eventually(t, "our copy is settled", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "shop.retry.10ms", 1)) == 2 })
	require.NoError(t, r.stop())
	require.Equal(t, map[string]string{"theirs": "shop.retry.10ms", "order-1": "orders"}, namespaces)
}

func TestRetryTopics_NotAllowed_HaltsInsteadOfTryingForEver(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop.retry.1h", Count: -1, Err: kerr.TopicAuthorizationFailed})
	var runs atomic.Int64
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), func(context.Context, *consumer.Message) error {
		runs.Add(1)
		return errStock
	}, tiers(5, time.Hour)))
	produce(t, c.ListenAddrs(), "orders", record{"k", "id-0", "v"})
	err := r.wait()
	require.ErrorContains(t, err, "halted at orders/0@0")
	require.ErrorContains(t, err, `write to "shop.retry.1h"`)
	require.ErrorContains(t, err, "allow this user to Describe and Write the topic")
	require.EqualValues(t, 1, runs.Load())
	require.Equal(t, []int64{0}, committed(t, c.ListenAddrs(), "shop", "orders", 1))
}
