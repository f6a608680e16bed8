package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/internal/testenv"
)

func deleteTopic(t *testing.T, brokers []string, topic string) {
	t.Helper()
	cl, closeIt := client(brokers, topic)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := cl.DeleteTopics(ctx, &kafkago.DeleteTopicsRequest{Topics: []string{topic}})
	require.NoError(t, err)
	require.NoError(t, res.Errors[topic])
	eventually(t, "it is gone", func() bool {
		meta, err := cl.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
		return err == nil && errors.Is(meta.Topics[0].Error, kafkago.UnknownTopicOrPartition)
	})
}

// anew are records that were not in the old topic.
func anew(n int) []record {
	recs := make([]record, n)
	for i := range recs {
		recs[i] = record{"k", fmt.Sprint("new-", i), "v"}
	}
	return recs
}

// madeAnew consumes 3 records of a topic, deletes it, and makes one of the same name with 10 others. The consumer may have been told by then.
func madeAnew(t *testing.T, brokers []string, topic string, change func(*kafka.Config)) (r *running, e *effects, group string) {
	t.Helper()
	cfg := config(t, brokers, topic)
	cfg.Group = testenv.Name(t)
	change(&cfg)
	e = new(effects)
	r = start(t, cfg, newPipe(t, newGuard(t, testenv.Name(t), nil), e.apply))
	produce(t, brokers, topic, numbered(3, 1)...)
	eventually(t, "three", func() bool { return sum(committed(t, brokers, cfg.Group, topic, 1)) == 3 })
	deleteTopic(t, brokers, topic)
	eventually(t, "the consumer has seen it", func() bool { return len(r.Lag()) == 0 })
	newTopic(t, brokers, topic, 1)
	produce(t, brokers, topic, anew(10)...)
	return r, e, cfg.Group
}

func waits(cfg *kafka.Config) { cfg.WaitForTopic = true }

// fromTheBeginning shows that none of the new topic's records is skipped although the group was further in the old one.
func fromTheBeginning(t *testing.T, brokers []string, topic string) {
	r, e, group := madeAnew(t, brokers, topic, waits)
	eventually(t, "to the end", func() bool { return sum(committed(t, brokers, group, topic, 1)) == 10 })
	require.NoError(t, r.stop())
	e.once(t, append(numbered(3, 1), anew(10)...))
}

func TestTopicMadeAnew_IsConsumedFromItsBeginning(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	fromTheBeginning(t, c.ListenAddrs(), "orders")
}

func TestTopicMadeAnew_IsConsumedFromItsBeginning_RealKafka(t *testing.T) {
	brokers := realBrokers(t)
	fromTheBeginning(t, brokers, newTopic(t, brokers, testenv.Name(t), 1))
}

func TestTopicMadeAnew_HaltsByDefaultAndCommitsNothing(t *testing.T) {
	brokers := realBrokers(t)
	topic := newTopic(t, brokers, testenv.Name(t), 1)
	r, e, group := madeAnew(t, brokers, topic, func(*kafka.Config) {})
	require.ErrorContains(t, r.wait(), fmt.Sprintf("topic %q was deleted and made anew while it was consumed", topic))
	require.Equal(t, 3, e.len())
	require.Equal(t, []int64{-1}, committed(t, brokers, group, topic, 1), "the broker has forgotten the old offset, and it is not put back")
}

func TestTopicMadeAnew_LatestSkipsWhatIsThereAndTellsIt(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	seen := &ranges{}
	r, e, group := madeAnew(t, c.ListenAddrs(), "orders", func(cfg *kafka.Config) {
		cfg.WaitForTopic, cfg.OutOfRange, cfg.Hooks = true, kafka.Latest, []kafka.Hook{seen}
	})
	eventually(t, "a start", func() bool { return len(seen.all()) == 1 })
	next := seen.all()[0][3]
	require.Equal(t, seen.all()[0][2], next, "the end")
	eventually(t, "to the end", func() bool { return sum(committed(t, c.ListenAddrs(), group, "orders", 1)) == 10 })
	require.NoError(t, r.stop())
	require.Equal(t, 3+10-int(next), e.len())
}

// The members divide the topic before and after; either may be the first to see that it is back.
func TestTopicMadeAnew_UnderTwoMembers_LosesNothing(t *testing.T) {
	c := fake(t, kfake.SeedTopics(2, "orders"))
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.WaitForTopic = true
	var e effects
	g := newGuard(t, "shop", nil)
	a := start(t, cfg, newPipe(t, g, e.apply))
	cfg.WatchPartitions = 700 * time.Millisecond
	b := start(t, cfg, newPipe(t, g, e.apply))
	a.assigned(1)
	b.assigned(1)
	before := numbered(8, 8)
	produce(t, c.ListenAddrs(), "orders", before...)
	eventually(t, "eight", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 2)) == 8 })
	deleteTopic(t, c.ListenAddrs(), "orders")
	eventually(t, "both have seen it", func() bool { return len(a.Lag())+len(b.Lag()) == 0 })
	newTopic(t, c.ListenAddrs(), "orders", 2)
	after := make([]record, 40)
	for i := range after {
		after[i] = record{fmt.Sprint("k", i), fmt.Sprint("new-", i), "v"}
	}
	produce(t, c.ListenAddrs(), "orders", after...)
	eventually(t, "to the end", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 2)) == 40 && e.len() >= 48 })
	require.NoError(t, a.stop())
	require.NoError(t, b.stop())
	e.once(t, append(before, after...))
}
