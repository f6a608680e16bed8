package kafka_test

import (
	"context"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/internal/testenv"
)

func grow(t *testing.T, brokers []string, topic string, to int32) {
	t.Helper()
	cl, closeIt := client(brokers, topic)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := cl.CreatePartitions(ctx, &kafkago.CreatePartitionsRequest{Topics: []kafkago.TopicPartitionsConfig{{Name: topic, Count: to}}})
	require.NoError(t, err)
	require.NoError(t, res.Errors[topic])
}

// newPartitions lets a topic grow under two consumers, and sends to the new partitions only.
func newPartitions(t *testing.T, brokers []string, topic string) {
	g := newGuard(t, testenv.Name(t), nil)
	var e effects
	a := start(t, config(t, brokers, topic), newPipe(t, g, e.apply))
	b := start(t, config(t, brokers, topic), newPipe(t, g, e.apply))
	both := func(n int) func() bool {
		return func() bool { return len(a.State().Assigned)+len(b.State().Assigned) == n }
	}
	eventually(t, "two partitions", both(2))
	grow(t, brokers, topic, 6)
	eventually(t, "six partitions", both(6))
	recs := numbered(60, 30)
	produce(t, brokers, topic, recs...)
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.NoError(t, a.stop())
	require.NoError(t, b.stop())
	e.once(t, recs)
}

func TestTrap12_NewPartitions_AreConsumed(t *testing.T) {
	c := fake(t)
	require.NoError(t, c.CreateTopic("growing", 2, nil))
	newPartitions(t, c.ListenAddrs(), "growing")
}

func TestTrap12_NewPartitions_AreConsumed_RealKafka(t *testing.T) {
	brokers := realBrokers(t)
	newPartitions(t, brokers, newTopic(t, brokers, testenv.Name(t), 2))
}

func TestTrap54_DeletedTopic_EndsRunWithItsName(t *testing.T) {
	c := fake(t)
	cons, err := kafka.NewConsumer(config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), new(effects).apply))
	require.NoError(t, err)
	cons.SetGoneFor(time.Second)
	r := startThis(t, cons)
	r.assigned(3)
	joins := observe(c, kmsg.JoinGroup)
	require.NoError(t, c.DeleteTopic("orders"))
	require.ErrorContains(t, r.wait(), `topic "orders" was deleted while it was consumed`)
	require.LessOrEqual(t, joins(), 1, "no generation after generation")
}

func TestTrap54_DeletedRetryTopicOfAnotherConfiguration_EndsNothing(t *testing.T) {
	c := fake(t)
	require.NoError(t, c.CreateTopic("shop.retry.9m", 1, nil))
	var e effects
	cons, err := kafka.NewConsumer(config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply))
	require.NoError(t, err)
	cons.SetGoneFor(time.Millisecond)
	r := startThis(t, cons)
	r.assigned(4)
	require.NoError(t, c.DeleteTopic("shop.retry.9m"))
	metadata := observe(c, kmsg.Metadata)
	eventually(t, "it was missed a few times", func() bool { return metadata() > 10 })
	produce(t, c.ListenAddrs(), "orders", record{"k", "id", "v"})
	eventually(t, "an effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
}

func TestTrap54_DeletedTopic_IsWaitedForIfAsked(t *testing.T) {
	c := fake(t)
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.WaitForTopic = true
	var e effects
	cons, err := kafka.NewConsumer(cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	require.NoError(t, err)
	cons.SetGoneFor(time.Millisecond)
	r := startThis(t, cons)
	r.assigned(3)
	require.NoError(t, c.DeleteTopic("orders"))
	metadata := observe(c, kmsg.Metadata)
	eventually(t, "it was missed a few times", func() bool { return metadata() > 10 })
	require.NoError(t, c.CreateTopic("orders", 5, nil))
	eventually(t, "the new one is assigned", func() bool { return len(r.State().Assigned) == 5 })
	recs := numbered(20, 10)
	produce(t, c.ListenAddrs(), "orders", recs...)
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.NoError(t, r.stop())
	e.once(t, recs)
}

func TestTrap53_TopicThatWasJustMade_IsConsumedAndWrittenTo(t *testing.T) {
	brokers := realBrokers(t)
	for range 3 {
		topic := newTopic(t, brokers, testenv.Name(t), 3)
		r := start(t, config(t, brokers, topic), newPipe(t, newGuard(t, testenv.Name(t), nil), new(effects).apply)) // makes <group>.dlq, and waits for its leaders
		r.assigned(3)
		require.NoError(t, r.stop())
	}
}
