package kafka_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/internal/testenv"
)

func openLetters(t testing.TB, brokers []string, topic string) *kafka.DeadLetterQueue {
	t.Helper()
	q, err := kafka.OpenDeadLetters(kafka.Config{Brokers: brokers}, topic)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return q
}

// listed waits until topic holds n letters.
func listed(t testing.TB, brokers []string, topic string, n int) (letters []consumer.DeadLetter) {
	t.Helper()
	q := openLetters(t, brokers, topic)
	eventually(t, "letters", func() bool {
		letters = letters[:0]
		for d, err := range q.List(context.Background()) {
			if err != nil {
				return false // the topic is being made
			}
			letters = append(letters, d)
		}
		return len(letters) >= n
	})
	require.Len(t, letters, n)
	return letters
}

var errStock = errors.New("stock would go below zero")

func TestDeadLetter_Headers_SayWhereFromWhyHowOftenAndWhen(t *testing.T) {
	c := fake(t)
	begun := time.Now()
	m := message(record{"sku-1", "order/1 ä", "body"})
	w := writer(t, c.ListenAddrs(), "orders")
	require.NoError(t, w.WriteMessages(context.Background(), m))
	var runs atomic.Int64
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), func(context.Context, *consumer.Message) error {
		runs.Add(1)
		return errStock
	}, func(c *consumer.Config) { c.Policy.Retry.Attempts = 2 }))
	d := listed(t, c.ListenAddrs(), "shop.dlq", 1)[0]
	eventually(t, "the source is acknowledged", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)) == 1 })
	require.NoError(t, r.stop())

	require.EqualValues(t, 2, runs.Load())
	require.Equal(t, "orders", d.Message.Origin.Topic)
	require.Zero(t, d.Message.Origin.Offset)
	require.Equal(t, "order/1 ä", d.ID)
	require.Equal(t, "orders", d.Namespace)
	require.Equal(t, "shop", d.Scope)
	require.Equal(t, consumer.ReasonExhausted, d.Reason)
	require.Equal(t, errStock.Error(), d.Error)
	require.Equal(t, 2, d.Attempts)
	require.WithinRange(t, d.DiedAt, begun.Add(-time.Second), time.Now().Add(time.Second))
	require.Equal(t, "sku-1", string(d.Message.Key))
	require.Equal(t, "body", string(d.Message.Value))
	id, _ := d.Message.Headers.Get(kafka.HeaderMessageID)
	require.Equal(t, "order/1 ä", id, "the producer's headers are kept")
}

func TestTrap18_Letters_AreAcknowledgedByAllReplicas(t *testing.T) {
	c := fake(t)
	produce(t, c.ListenAddrs(), "orders", record{"k", "id", "v"})
	var acks atomic.Int64
	c.ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		acks.Store(int64(req.(*kmsg.ProduceRequest).Acks))
		return nil, nil, false
	})
	acks.Store(99)
	start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), permanent))
	listed(t, c.ListenAddrs(), "shop.dlq", 1)
	require.EqualValues(t, -1, acks.Load())
}

func permanent(context.Context, *consumer.Message) error { return consumer.Permanent(errStock) }

func TestTrap17_Letter_TakesNoSecond(t *testing.T) {
	c := fake(t)
	q := openLetters(t, c.ListenAddrs(), "orders")
	d := consumer.DeadLetter{Message: kafka.FromKafka(message(record{"k", "id", "v"})), ID: "id", Scope: "shop", Reason: consumer.ReasonPermanent, DiedAt: time.Now()}
	require.NoError(t, q.Publish(context.Background(), d)) // opens the connection
	begun := time.Now()
	require.NoError(t, q.Publish(context.Background(), d))
	require.Less(t, time.Since(begun), 500*time.Millisecond)
}

func TestDeadLetter_WriteFails_SourceIsNotAcknowledgedUntilItIsThere(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders", "shop.dlq"))
	produce(t, c.ListenAddrs(), "orders", record{"k", "id", "v"})
	var refusals atomic.Int64
	var heal atomic.Bool
	c.ControlKey(kmsg.Produce.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if heal.Load() {
			return nil, nil, false
		}
		refusals.Add(1)
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.(*kmsg.ProduceRequest).Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, 19 // NOT_ENOUGH_REPLICAS
				st.Partitions = append(st.Partitions, sp)
			}
			res.Topics = append(res.Topics, st)
		}
		return res, nil, true
	})
	log := newGuard(t, "shop", nil)
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, log, permanent))
	eventually(t, "a refused letter", func() bool { return refusals.Load() > 3 })
	require.Equal(t, []int64{0}, committed(t, c.ListenAddrs(), "shop", "orders", 1))
	key, err := log.Key("orders", "id")
	require.NoError(t, err)
	rec, err := log.Inspect(context.Background(), key)
	require.NoError(t, err)
	require.NotEqual(t, dedupe.StateDead, rec.State, "a key is buried after its letter only")
	heal.Store(true)
	listed(t, c.ListenAddrs(), "shop.dlq", 1)
	eventually(t, "the source is acknowledged", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)) == 1 })
	require.NoError(t, r.stop())
}

func TestDeadLetter_TooLarge_LosesTheTextOfItsErrorThenHalts(t *testing.T) {
	brokers := realBrokers(t)
	topic := newTopic(t, brokers, testenv.Name(t), 1)
	small := func(limit string) (group string) {
		group = testenv.Name(t)
		newTopic(t, brokers, group+".dlq", 1, entry("max.message.bytes", limit))
		return group
	}
	value := strings.Repeat("v", 2000)
	long := consumer.Permanent(errors.New(strings.Repeat("e", 1000)))
	d := consumer.DeadLetter{Message: kafka.FromKafka(message(record{"k", "id", value})), ID: "id", Scope: "shop", Reason: consumer.ReasonPermanent, Error: long.Error(), DiedAt: time.Now()}
	d.Message.Origin = consumer.Position{Topic: topic}

	group := small("2800")
	require.NoError(t, openLetters(t, brokers, group+".dlq").Publish(context.Background(), d))
	got := listed(t, brokers, group+".dlq", 1)[0]
	require.Empty(t, got.Error)
	require.Equal(t, value, string(got.Message.Value))

	group = small("1500")
	err := openLetters(t, brokers, group+".dlq").Publish(context.Background(), d)
	require.ErrorIs(t, err, consumer.ErrLetterRefused)
	require.ErrorContains(t, err, "raise max.message.bytes")
}

func TestRedrive_LetterSentAgain_TakesEffectOnce(t *testing.T) {
	c := fake(t)
	produce(t, c.ListenAddrs(), "orders", record{"k", "id-1", "v"})
	g := newGuard(t, "shop", nil)
	var e effects
	var broken atomic.Bool
	broken.Store(true)
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, g, func(ctx context.Context, m *consumer.Message) error {
		if broken.Load() {
			return consumer.Permanent(errStock)
		}
		return e.apply(ctx, m)
	}))
	listed(t, c.ListenAddrs(), "shop.dlq", 1)
	eventually(t, "the source is settled", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)) == 1 })
	broken.Store(false)
	q := openLetters(t, c.ListenAddrs(), "shop.dlq")
	for i := range 3 {
		report, err := consumer.Redrive(context.Background(), g, q, consumer.RedriveOptions{Audit: dedupe.Audit{By: "ops", Reason: "stock corrected"}})
		require.NoError(t, err)
		require.Empty(t, report.Failed)
		if i == 0 {
			require.Equal(t, 1, report.Redriven)
		}
		eventually(t, "effect", func() bool { return e.len() == 1 })
	}
	eventually(t, "the copy is settled", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)) >= 2 })
	require.NoError(t, r.stop())
	require.Equal(t, []string{"id-1"}, e.ids())
}

func TestOpenDeadLetters_BadSettings_AreListedWithoutIO(t *testing.T) {
	_, err := kafka.OpenDeadLetters(kafka.Config{Brokers: []string{"nowhere"}}, "a b")
	require.ErrorContains(t, err, `"nowhere" is not host:port`)
	require.ErrorContains(t, err, `"a b" is not a topic name`)
}

func TestList_MissingTopic_IsOneClearError(t *testing.T) {
	c := fake(t)
	var errs []error
	for _, err := range openLetters(t, c.ListenAddrs(), "shop.dlq").List(context.Background()) {
		errs = append(errs, err)
	}
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], `topic "shop.dlq" does not exist`)
}

func TestList_ForeignMessage_IsAnErrorAndTheListGoesOn(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "shop.dlq"))
	produce(t, c.ListenAddrs(), "shop.dlq", record{"k", "id", "no letter"})
	q := openLetters(t, c.ListenAddrs(), "shop.dlq")
	d := consumer.DeadLetter{Message: kafka.FromKafka(message(record{"k", "id", "v"})), ID: "id", Scope: "shop", Reason: consumer.ReasonPermanent, DiedAt: time.Now()}
	d.Message.Origin = consumer.Position{Topic: "orders"}
	require.NoError(t, q.Publish(context.Background(), d))
	var good, bad int
	for _, err := range q.List(context.Background()) {
		if err != nil {
			bad++
			continue
		}
		good++
	}
	require.Equal(t, 1, good)
	require.Equal(t, 1, bad)
}

// requireHaltForMissing lets "bad" meet a topic that was deleted.
func requireHaltForMissing(t *testing.T, topic string, change func(*consumer.Config)) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	var runs atomic.Int64
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), func(_ context.Context, m *consumer.Message) error {
		runs.Add(1)
		if m.ID() == "bad" {
			return consumer.Permanent(errStock)
		}
		return errStock
	}, change))
	eventually(t, "it runs", func() bool { return r.State().Phase == consumer.PhaseRunning })
	deleteTopic(t, c.ListenAddrs(), topic)
	produce(t, c.ListenAddrs(), "orders", record{"k", "bad", "v"})
	err := r.wait()
	require.ErrorContains(t, err, "halted at orders/0@0")
	require.ErrorContains(t, err, `topic "`+topic+`" does not exist any more`)
	require.ErrorContains(t, err, "create it: kafka-topics.sh --bootstrap-server "+c.ListenAddrs()[0]+" --create --topic "+topic+" --partitions 1")
	require.EqualValues(t, 1, runs.Load(), "the handler is not run again and again")
	require.Equal(t, []int64{0}, committed(t, c.ListenAddrs(), "shop", "orders", 1))
}

func TestDeadLetter_TopicIsGone_HaltsWithTheCommandThatMakesIt(t *testing.T) {
	requireHaltForMissing(t, "shop.dlq", func(*consumer.Config) {})
}

func TestDeadLetter_NotAllowed_IsRefusedWithARemedy(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "shop.dlq"))
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "shop.dlq", Count: -1, Err: kerr.TopicAuthorizationFailed})
	q := openLetters(t, c.ListenAddrs(), "shop.dlq")
	err := q.Publish(context.Background(), consumer.DeadLetter{Message: kafka.FromKafka(message(record{"k", "id", "v"})), ID: "id", Scope: "shop", Reason: consumer.ReasonPermanent, DiedAt: time.Now()})
	require.ErrorIs(t, err, consumer.ErrLetterRefused)
	require.ErrorContains(t, err, "allow this user to Describe and Write the topic")
}

func TestRedrive_LetterOverOneMegabyte_IsSentAgain(t *testing.T) {
	brokers := realBrokers(t)
	topic := newTopic(t, brokers, testenv.Name(t), 1, entry("max.message.bytes", "5000000"))
	cfg := config(t, brokers, topic)
	cfg.Group = testenv.Name(t)
	g := newGuard(t, testenv.Name(t), nil)
	r := start(t, cfg, newPipe(t, g, permanent))
	w := writer(t, brokers, topic)
	w.BatchBytes = 4 << 20
	require.NoError(t, w.WriteMessages(context.Background(), message(record{"k", "large", strings.Repeat("x", 2<<20)})))
	eventually(t, "it is buried", func() bool { return sum(committed(t, brokers, cfg.Group, topic, 1)) == 1 })
	require.NoError(t, r.stop())
	q := openLetters(t, brokers, cfg.Group+".dlq")
	report, err := consumer.Redrive(context.Background(), g, q, consumer.RedriveOptions{Audit: dedupe.Audit{By: "ops", Reason: "stock corrected"}})
	require.NoError(t, err)
	require.Empty(t, report.Failed)
	require.Equal(t, 1, report.Redriven)
	var e effects
	r = start(t, cfg, newPipe(t, g, e.apply))
	eventually(t, "its effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
}
