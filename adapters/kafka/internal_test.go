package kafka

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/lanes"
	"github.com/idemq/idemq/internal/testenv"
)

// groupOf is a member's side of a group that a test joins by hand.
type groupOf struct {
	*run
	cg *kafkago.ConsumerGroup
}

func join(t *testing.T, brokers []string, group, topic string) *groupOf {
	t.Helper()
	g, err := dedupe.New(dedupe.Config{Scope: "shop", Mode: dedupe.Logged, Log: memstore.NewLog()})
	require.NoError(t, err)
	p, err := consumer.NewPipeline(consumer.Config{Guard: g, Handler: func(context.Context, *consumer.Message) error { return nil }, ID: consumer.IDFromKey()})
	require.NoError(t, err)
	c, err := NewConsumer(Config{Brokers: brokers, Group: group, Topics: []string{topic}, Session: time.Second}, p)
	require.NoError(t, err)
	r := newRun(c, context.Background())
	r.transport = r.cluster.transport(topic)
	r.client = &kafkago.Client{Addr: r.cluster.addr, Timeout: requestTimeout, Transport: r.transport}
	cg, err := kafkago.NewConsumerGroup(kafkago.ConsumerGroupConfig{
		ID: group, Brokers: brokers, Dialer: r.cluster.dialer, Topics: []string{topic},
		SessionTimeout: time.Second, HeartbeatInterval: 100 * time.Millisecond, JoinGroupBackoff: 100 * time.Millisecond, RebalanceTimeout: 5 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, cg.Close())
		r.cluster.close()
	})
	return &groupOf{r, cg}
}

func TestNewConsumer_NilLogger_IsThePipelines(t *testing.T) {
	g, err := dedupe.New(dedupe.Config{Scope: "shop", Mode: dedupe.Logged, Log: memstore.NewLog()})
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	p, err := consumer.NewPipeline(consumer.Config{Guard: g, Handler: func(context.Context, *consumer.Message) error { return nil }, ID: consumer.IDFromKey(), Logger: log})
	require.NoError(t, err)
	c, err := NewConsumer(Config{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"orders"}}, p)
	require.NoError(t, err)
	require.Same(t, log, c.log)
	q, err := OpenDeadLetters(Config{Brokers: []string{"127.0.0.1:1"}}, "shop.dlq")
	require.NoError(t, err)
	require.Same(t, slog.Default(), q.cfg.Logger)
	require.NoError(t, q.Close())
}

func (g *groupOf) next(t *testing.T) *kafkago.Generation {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		gen, err := g.cg.Next(ctx)
		if err == nil {
			return gen
		}
		require.NoError(t, ctx.Err())
	}
}

// bothBrokers runs f on the fake and on a real broker.
func bothBrokers(t *testing.T, f func(t *testing.T, brokers []string, topic string)) {
	t.Run("kfake", func(t *testing.T) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond), kfake.SeedTopics(1, "orders"))
		require.NoError(t, err)
		t.Cleanup(c.Close)
		f(t, c.ListenAddrs(), "orders")
	})
	t.Run("real", func(t *testing.T) {
		if testing.Short() {
			t.Skip("needs a real Kafka; not with -short")
		}
		brokers, topic := testenv.Kafka(t), testenv.Name(t)
		c := newCluster(Config{Brokers: brokers})
		t.Cleanup(c.close)
		require.NoError(t, c.ensure(context.Background(), []*sideTopic{{name: topic, partitions: 1}}, true))
		f(t, brokers, topic)
	})
}

func committedNow(t *testing.T, r *run, topic string) int64 {
	t.Helper()
	res, err := r.client.OffsetFetch(context.Background(), &kafkago.OffsetFetchRequest{GroupID: r.cfg.Group, Topics: map[string][]int{topic: {0}}})
	require.NoError(t, err)
	require.NoError(t, res.Error)
	return res.Topics[topic][0].CommittedOffset
}

func TestTrap01_CommitOfAnEndedGeneration_IsRefusedAndChangesNothing(t *testing.T) {
	bothBrokers(t, func(t *testing.T, brokers []string, topic string) {
		g := join(t, brokers, testenv.Name(t), topic)
		old := g.next(t)
		stale := &committer{r: g.run, gen: old, sent: map[TopicPartition]int64{}}
		at := func(o int64) map[TopicPartition]int64 { return map[TopicPartition]int64{{topic, 0}: o} }
		require.NoError(t, stale.commit(context.Background(), at(3), true))
		old.Start(func(context.Context) {}) // ends the generation; the member joins again
		now := &committer{r: g.run, gen: g.next(t), sent: map[TopicPartition]int64{}}
		require.NoError(t, now.commit(context.Background(), at(20), true))

		require.Error(t, stale.commit(context.Background(), at(3), true), "trap 4: its connection is closed")
		require.True(t, stale.detour)
		require.Error(t, stale.commit(context.Background(), at(3), true), "and over another connection it is refused")
		require.EqualValues(t, 20, committedNow(t, g.run, topic))
	})
}

func TestTrap04_LastCommitOnADeadConnection_IsRepeatedByTheClient(t *testing.T) {
	bothBrokers(t, func(t *testing.T, brokers []string, topic string) {
		g := join(t, brokers, testenv.Name(t), topic)
		gen := g.next(t)
		k := &committer{r: g.run, gen: gen, sent: map[TopicPartition]int64{}, detour: true} // as after the connection failed
		require.NoError(t, k.final(context.Background(), context.Background(), map[TopicPartition]int64{{topic, 0}: 7}))
		require.EqualValues(t, 7, committedNow(t, g.run, topic))
	})
}

// PROTOCOL 6: a rebalance may come between an answer and its delivery; what was dropped then is not committed.
func TestDeliver_OfASessionThatIsOver_CommitsNothing(t *testing.T) {
	p := &partition{tp: TopicPartition{"orders", 0}}
	p.lanes = lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[*consumer.Message]{})
	p.lanes.Skip(5)
	p.lanes.Stop()
	p.deliver(t.Context(), fetched{records: []record{{offset: 5}, {offset: 6}}, next: 7})
	mark, ok := p.watermark()
	require.True(t, ok)
	require.EqualValues(t, 5, mark)
	require.Zero(t, p.waiting.used)
}

func TestCommitter_Unchanged_IsSentOnlyAsAHeartbeat(t *testing.T) {
	bothBrokers(t, func(t *testing.T, brokers []string, topic string) {
		g := join(t, brokers, testenv.Name(t), topic)
		seen := &commitCount{}
		g.cfg.Hooks = []Hook{seen}
		k := &committer{r: g.run, gen: g.next(t), sent: map[TopicPartition]int64{}}
		at := map[TopicPartition]int64{{topic, 0}: 7}
		for _, all := range []bool{false, false, true, true, false} {
			require.NoError(t, k.commit(context.Background(), at, all))
		}
		require.Equal(t, 3, seen.n, "the first, and the two that ask for all")
	})
}

type commitCount struct{ n int }

func (c *commitCount) OnCommit(context.Context, int32, map[TopicPartition]int64, error) { c.n++ }

func TestTrap23_Keeper_ReturnsWhenTheCoordinatorAnswersAgainAndAtOnceWhenStopped(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	g := join(t, c.ListenAddrs(), "shop", "orders")
	require.NoError(t, g.keep(context.Background()))

	c.Fault(kfake.Fault{Group: "shop", Count: 5, Err: kerr.NotCoordinator})
	require.NoError(t, g.keep(context.Background()), "it asks again")

	h := c.Fault(kfake.Fault{Group: "shop", Count: -1, Err: kerr.NotCoordinator})
	defer h.Remove()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	begun := time.Now()
	require.Error(t, g.keep(ctx))
	require.Less(t, time.Since(begun), time.Second)
}

func TestTransient_ErrorsOfAMovingCoordinator_AreAndRefusalsAreNot(t *testing.T) {
	for _, err := range []error{kafkago.NotCoordinatorForGroup, kafkago.GroupLoadInProgress, kafkago.GroupCoordinatorNotAvailable, context.DeadlineExceeded} {
		require.True(t, transient(err), "%v", err)
	}
	for _, err := range []error{kafkago.UnknownMemberId, kafkago.IllegalGeneration, kafkago.RebalanceInProgress, kafkago.GroupAuthorizationFailed} {
		require.False(t, transient(err), "%v", err)
	}
}

func TestBudget_Full_WaitsForRoom(t *testing.T) {
	b := budget{limit: 10}
	require.NoError(t, b.wait(context.Background()))
	b.add(25)
	ctx, cancel := context.WithCancel(context.Background())
	waited := make(chan error)
	go func() { waited <- b.wait(ctx) }()
	b.add(-10)
	select {
	case <-waited:
		require.Fail(t, "15 of 10 are used")
	case <-time.After(20 * time.Millisecond):
	}
	b.add(-10)
	require.NoError(t, <-waited)
	b.add(100)
	go func() { waited <- b.wait(ctx) }()
	cancel()
	require.Error(t, <-waited)
}

func TestTrap19_ClosedCluster_LeavesNoConnectionAndNoGoroutine(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	defer c.Close()
	before := goleak.IgnoreCurrent()
	cl := newCluster(Config{Brokers: c.ListenAddrs()})
	transport := cl.transport("orders")
	begun := time.Now()
	waited := make(chan error)
	go func() {
		_, err := fetchOnce(context.Background(), transport, cl.addr, "orders", 0, 0, 1<<20, nil)
		if err == nil {
			_, err = fetchOnce(context.Background(), transport, cl.addr, "orders", 0, 0, 1<<20, nil) // the next waits for records
		}
		waited <- err
	}()
	for open := 0; open == 0; {
		cl.dials.mu.Lock()
		open = len(cl.dials.open)
		cl.dials.mu.Unlock()
		require.Less(t, time.Since(begun), 10*time.Second)
	}
	cl.close()
	require.Error(t, <-waited)
	require.Empty(t, cl.dials.open)
	_, err = cl.dials.dial(context.Background(), "tcp", c.ListenAddrs()[0])
	require.ErrorIs(t, err, net.ErrClosed)
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).read"), goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*clientConn).write"))
}
