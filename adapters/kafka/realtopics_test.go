package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/internal/testenv"
)

func TestTrap06_Transactions_OnlyWhatWasCommittedTakesEffectAndNoLagStays(t *testing.T) {
	brokers := realBrokers(t)
	topic := newTopic(t, brokers, testenv.Name(t), 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer cl.Close()
	var want []record
	for n := range 10 {
		require.NoError(t, cl.BeginTransaction())
		for i := range 5 {
			r := record{fmt.Sprint("k", i), fmt.Sprintf("id-%d-%d", n, i), "v"}
			require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Key: []byte(r.key), Value: []byte(r.value), Headers: []kgo.RecordHeader{{Key: kafka.HeaderMessageID, Value: []byte(r.id)}}}).FirstErr())
			if n%2 == 0 {
				want = append(want, r)
			}
		}
		require.NoError(t, cl.EndTransaction(ctx, kgo.TransactionEndTry(n%2 == 0)))
	}
	var e effects
	cfg := config(t, brokers, topic)
	cfg.Group = testenv.Name(t)
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "the end, markers included", func() bool { return sum(committed(t, brokers, cfg.Group, topic, 1)) == 60 })
	require.Zero(t, r.Lag()[kafka.TopicPartition{Topic: topic}])
	require.NoError(t, r.stop())
	e.once(t, want)
}

// A real broker's compaction leaves holes, and, for the sake of an idempotent producer's sequence, batches without records.
func TestTrap07_EmptyBatchesOfACompactedTopic_AreReadToTheEnd_RealKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real Kafka; not with -short")
	}
	s := testenv.OwnKafka(t, testenv.KafkaOptions{Extra: "log.cleaner.backoff.ms=100"})
	brokers := []string{s.Addr}
	topic := newTopic(t, brokers, testenv.Name(t), 1, entry("cleanup.policy", "compact"), entry("segment.ms", "100"),
		entry("min.cleanable.dirty.ratio", "0.001"), entry("delete.retention.ms", "0"), entry("max.compaction.lag.ms", "1000"))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	produceOne := func(cl *kgo.Client, key string, value []byte) {
		require.NoError(t, cl.ProduceSync(ctx, &kgo.Record{Key: []byte(key), Value: value, Headers: []kgo.RecordHeader{{Key: kafka.HeaderMessageID, Value: fmt.Append(nil, key, value == nil)}}}).FirstErr())
	}
	for n := range 5 { // each producer ends with a tombstone: its last batch must stay, and has nothing to hold
		cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic))
		require.NoError(t, err)
		for range 4 {
			produceOne(cl, fmt.Sprint("k", n), []byte("v"))
		}
		produceOne(cl, fmt.Sprint("k", n), nil)
		cl.Close()
	}
	other, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer other.Close()
	end := int64(25)
	eventually(t, "the broker has compacted", func() bool {
		produceOne(other, "roll", []byte("v")) // the active segment is never compacted
		end++
		return recordsOf(t, ctx, brokers, topic) <= 3
	})
	var e effects
	cfg := config(t, brokers, topic)
	cfg.Group = testenv.Name(t)
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "the end", func() bool { return sum(committed(t, brokers, cfg.Group, topic, 1)) == end })
	require.Zero(t, r.Lag()[kafka.TopicPartition{Topic: topic}])
	require.NoError(t, r.stop())
	require.Contains(t, e.ids(), "rollfalse")
}

// recordsOf counts what another client finds in a topic.
func recordsOf(t *testing.T, ctx context.Context, brokers []string, topic string) (n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	require.NoError(t, err)
	defer cl.Close()
	for {
		quiet, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		fs := cl.PollFetches(quiet)
		cancel()
		if fs.NumRecords() == 0 {
			return n
		}
		n += fs.NumRecords()
	}
}
