package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/testenv"
)

// stream produces numbered records until stop is called, which returns all of them.
func stream(t *testing.T, brokers []string, topic string, keys int, pause time.Duration) (stop func() []record) {
	t.Helper()
	w := writer(t, brokers, topic)
	w.MaxAttempts = 100 // a broker that is away for a while
	w.WriteBackoffMax = 200 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan []record)
	go func() {
		var all []record
		for n := 0; ctx.Err() == nil; {
			var ms []kafkago.Message
			for range 20 {
				r := record{fmt.Sprint("k", n%keys), fmt.Sprint("id-", n), fmt.Sprint(n)}
				all = append(all, r)
				ms = append(ms, message(r))
				n++
			}
			for { // the writer is not idempotent: what it writes twice is one more duplicate for the guard
				if err := w.WriteMessages(context.Background(), ms...); err == nil {
					break
				}
				time.Sleep(50 * time.Millisecond) // a pause between attempts, not a wait for anything
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		done <- all
	}()
	return sync.OnceValue(func() []record {
		cancel()
		return <-done
	})
}

// churn lets members of one group join and leave while records are produced, and then demands that each took effect once, in the order of
// its key, and that no committed offset ever went back.
func churn(t *testing.T, brokers []string, topic string, partitions, rounds int, pause time.Duration, meanwhile func(round int)) {
	group := testenv.Name(t)
	log := memstore.NewLog()
	var e effects
	cs := &commits{}
	h := func(ctx context.Context, m *consumer.Message) error {
		if rand.IntN(50) == 0 {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // work takes time
		}
		return e.apply(ctx, m)
	}
	member := func() *running {
		cfg := config(t, brokers, topic)
		cfg.Group = group
		cfg.Session = 6 * time.Second
		cfg.Hooks = []kafka.Hook{cs}
		return start(t, cfg, newPipe(t, newGuard(t, "shop", log), h, func(c *consumer.Config) { c.Policy.Concurrency = 32 }))
	}
	stop := stream(t, brokers, topic, 101, 5*time.Millisecond)
	members := []*running{member()}
	for round := range rounds {
		time.Sleep(pause) // the pace of the churn; nothing is expected of it
		if meanwhile != nil {
			meanwhile(round)
		}
		if len(members) < 3 && (len(members) < 2 || rand.IntN(2) == 0) {
			members = append(members, member())
			continue
		}
		i := rand.IntN(len(members))
		require.NoError(t, members[i].stop())
		members = append(members[:i], members[i+1:]...)
	}
	recs := stop()
	eventually(t, "all effects", func() bool { return e.len() >= len(recs) })
	for _, m := range members {
		require.NoError(t, m.stop())
	}
	t.Logf("%d records, %d commits, %d failed", len(recs), cs.n, len(cs.failed))
	e.once(t, recs)
	require.Empty(t, cs.back, "a commit went back: it was of an old generation")
	require.GreaterOrEqual(t, sum(committed(t, brokers, group, topic, partitions)), int64(len(recs)))
}

func TestChurn_MembersJoinAndLeave_NothingIsLostTwiceOrOutOfOrder(t *testing.T) {
	c := fake(t, kfake.SeedTopics(6, "orders"))
	churn(t, c.ListenAddrs(), "orders", 6, 12, 300*time.Millisecond, nil)
}

func TestChurn_RealKafka(t *testing.T) {
	brokers := realBrokers(t)
	churn(t, brokers, newTopic(t, brokers, testenv.Name(t), 6), 6, 16, 500*time.Millisecond, nil)
}

func TestTrap23_CoordinatorAndLeadersMove_NothingIsLostTwiceOrOutOfOrder(t *testing.T) {
	c := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "orders"))
	churn(t, c.ListenAddrs(), "orders", 6, 8, 400*time.Millisecond, func(round int) {
		if round%2 == 1 {
			c.ShufflePartitionLeaders()
		}
		if round%3 == 2 {
			c.RehashCoordinators()
		}
	})
}

// While no broker is the coordinator, the member waits for one instead of forgetting its name; else everybody would wait for the end of its session.
func TestTrap23_NoCoordinatorForAWhile_MemberJoinsAgainUnderItsName(t *testing.T) {
	c := fake(t)
	gens := &generations{}
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.Session = 6 * time.Second
	cfg.Hooks = []kafka.Hook{gens}
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	r.assigned(3)
	var nameless, named atomic.Int64
	c.ControlKey(kmsg.JoinGroup.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if req.(*kmsg.JoinGroupRequest).MemberID == "" {
			nameless.Add(1)
		} else {
			named.Add(1)
		}
		return nil, nil, false
	})
	asked := observe(c, kmsg.OffsetFetch)
	h := c.Fault(kfake.Fault{Group: "shop", Count: -1, Err: kerr.NotCoordinator})
	before := asked()
	eventually(t, "the keeper asks again and again", func() bool { return asked() > before+5 })
	h.Remove()
	eventually(t, "a new generation", func() bool { return len(gens.all()) == 2 })
	recs := numbered(20, 5)
	produce(t, c.ListenAddrs(), "orders", recs...)
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.NoError(t, r.stop())
	require.Zero(t, nameless.Load())
	require.Positive(t, named.Load())
}

func TestTrap23_BrokerKilledAndStartedAgainUnderLoad_NothingIsLostTwiceOrOutOfOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real Kafka; not with -short")
	}
	s := testenv.OwnKafka(t, testenv.KafkaOptions{})
	brokers := []string{s.Addr}
	topic := newTopic(t, brokers, testenv.Name(t), 6)
	group := testenv.Name(t)
	log := memstore.NewLog()
	var e effects
	cs := &commits{}
	cfg := config(t, brokers, topic)
	cfg.Group, cfg.Session = group, 6*time.Second
	cfg.Hooks = []kafka.Hook{cs}
	stop := stream(t, brokers, topic, 101, 5*time.Millisecond)
	var members []*running
	for range 2 {
		members = append(members, start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply)))
	}
	for n := range 2 {
		seen := e.len()
		eventually(t, "it flows", func() bool { return e.len() > seen+500 })
		t.Logf("kill %d after %d effects", n+1, e.len())
		require.NoError(t, s.Restart())
	}
	seen := e.len()
	eventually(t, "it flows again", func() bool { return e.len() > seen+500 })
	recs := stop()
	eventually(t, "all effects", func() bool { return e.len() >= len(recs) })
	for _, m := range members {
		require.NoError(t, m.stop())
	}
	t.Logf("%d records, %d commits, %d failed", len(recs), cs.n, len(cs.failed))
	e.once(t, recs)
	require.Empty(t, cs.back)
}
