package kafka_test

import (
	"context"
	"sync"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/testenv"
)

// outOfRange is a group that has settled 2 of 10 records, of which 5 were deleted since.
func outOfRange(t *testing.T, policy kafka.Start) (c *kfake.Cluster, cfg kafka.Config, log *memstore.Log, seen *ranges) {
	t.Helper()
	c = fake(t, kfake.SeedTopics(1, "orders"))
	recs := numbered(10, 1)
	produce(t, c.ListenAddrs(), "orders", recs[:2]...)
	log, seen = memstore.NewLog(), &ranges{}
	cfg = config(t, c.ListenAddrs(), "orders")
	cfg.OutOfRange = policy
	cfg.Hooks = []kafka.Hook{seen}
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), new(effects).apply))
	eventually(t, "two settled", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)) == 2 })
	require.NoError(t, r.stop())
	produce(t, c.ListenAddrs(), "orders", recs[2:]...)
	require.NoError(t, c.DeleteRecords("orders", 0, 5))
	return c, cfg, log, seen
}

// ranges notes what HookOutOfRange says.
type ranges struct {
	mu   sync.Mutex
	seen [][4]int64
}

func (r *ranges) OnOutOfRange(_ context.Context, _ kafka.TopicPartition, committed, first, end, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, [4]int64{committed, first, end, next})
}

func (r *ranges) all() [][4]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

func TestTrap15_OffsetOutOfRange_HaltsByDefault(t *testing.T) {
	c, cfg, log, seen := outOfRange(t, kafka.Default)
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	err := r.wait()
	require.ErrorContains(t, err, "orders/0: offset 2 is gone: the partition has 5 to 10")
	require.ErrorContains(t, err, "choose Config.OutOfRange")
	require.Equal(t, consumer.PhaseHalted, r.State().Phase)
	require.Equal(t, err, r.State().Err)
	require.Zero(t, e.len())
	require.Equal(t, [][4]int64{{2, 5, 10, -1}}, seen.all())
	require.EqualValues(t, 2, sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)), "nothing is skipped")
}

func TestTrap15_OffsetOutOfRange_EarliestGoesOnWithWhatIsThere(t *testing.T) {
	c, cfg, log, seen := outOfRange(t, kafka.Earliest)
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "the five that are left", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)) == 10 })
	require.NoError(t, r.stop())
	require.Equal(t, []string{"id-5", "id-6", "id-7", "id-8", "id-9"}, e.ids())
	require.Equal(t, [][4]int64{{2, 5, 10, 5}}, seen.all())
}

func TestTrap15_OffsetOutOfRange_LatestSkipsAllAndTellsIt(t *testing.T) {
	c, cfg, log, seen := outOfRange(t, kafka.Latest)
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "the end", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)) == 10 })
	produce(t, c.ListenAddrs(), "orders", record{"k", "new", "x"})
	eventually(t, "the next", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
	require.Equal(t, []string{"new"}, e.ids())
	require.Equal(t, [][4]int64{{2, 5, 10, 10}}, seen.all())
}

func TestTrap15_OffsetPastTheEnd_GoesBackToTheBeginningWithoutEffectsTwice(t *testing.T) { // as after a topic was made anew
	c := fake(t, kfake.SeedTopics(1, "orders"))
	recs := numbered(10, 1)
	produce(t, c.ListenAddrs(), "orders", recs...)
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.OutOfRange = kafka.Earliest
	seen := &ranges{}
	cfg.Hooks = []kafka.Hook{seen}
	log := memstore.NewLog()
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "ten", func() bool { return e.len() == 10 })
	require.NoError(t, r.stop())

	setOffset(t, c.ListenAddrs(), "shop", "orders", 0, 50)
	r = start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "all settled again", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)) == 10 })
	require.NoError(t, r.stop())
	require.Equal(t, [][4]int64{{50, 0, 10, 0}}, seen.all())
	e.once(t, recs)
}

// setOffset commits for a group without members.
func setOffset(t *testing.T, brokers []string, group, topic string, partition int, offset int64) {
	t.Helper()
	cl, closeIt := client(brokers, topic)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	res, err := cl.OffsetCommit(ctx, &kafkago.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: map[string][]kafkago.OffsetCommit{topic: {{Partition: partition, Offset: offset}}}})
	require.NoError(t, err)
	require.NoError(t, res.Topics[topic][0].Error)
}

// produceTo writes to one partition.
func produceTo(t *testing.T, brokers []string, topic string, partition int, id string) {
	t.Helper()
	cl, closeIt := client(brokers, topic)
	defer closeIt()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	eventually(t, "a produced record", func() bool {
		res, err := cl.Produce(ctx, &kafkago.ProduceRequest{Topic: topic, Partition: partition, RequiredAcks: kafkago.RequireAll, Records: kafkago.NewRecordReader(kafkago.Record{
			Value: kafkago.NewBytes([]byte("v")), Headers: []kafkago.Header{{Key: kafka.HeaderMessageID, Value: []byte(id)}},
		})})
		return err == nil && res.Error == nil
	})
}

func latestAndNewPartitions(t *testing.T, brokers []string, topic string) {
	cfg := config(t, brokers, topic)
	cfg.Group = testenv.Name(t)
	cfg.Start = kafka.Latest
	log := memstore.NewLog()
	var e effects
	produceTo(t, brokers, topic, 0, "before")
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "the end is committed", func() bool { return committed(t, brokers, cfg.Group, topic, 1)[0] == 1 })
	produceTo(t, brokers, topic, 0, "a")
	eventually(t, "a", func() bool { return e.len() == 1 })
	grow(t, brokers, topic, 2)
	produceTo(t, brokers, topic, 1, "b")
	eventually(t, "what was sent before we knew the partition", func() bool { return e.len() == 2 })
	require.NoError(t, r.stop())

	grow(t, brokers, topic, 3) // while nobody is there
	produceTo(t, brokers, topic, 2, "c")
	r = start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "what was sent while nobody was there", func() bool { return e.len() == 3 })
	require.NoError(t, r.stop())
	require.Equal(t, []string{"a", "b", "c"}, e.ids())
}

func TestStartLatest_PartitionsThatAreAddedLater_BeginAtTheirFirstRecord(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	latestAndNewPartitions(t, c.ListenAddrs(), "orders")
}

func TestStartLatest_PartitionsThatAreAddedLater_BeginAtTheirFirstRecord_RealKafka(t *testing.T) {
	brokers := realBrokers(t)
	latestAndNewPartitions(t, brokers, newTopic(t, brokers, testenv.Name(t), 1))
}
