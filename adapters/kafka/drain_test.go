package kafka_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/testenv"
)

func TestStop_MessageInFlight_IsSettledAndCommittedFirst(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	produce(t, c.ListenAddrs(), "orders", record{"a", "id-0", "x"}, record{"a", "id-1", "x"})
	var e effects
	begun, release := make(chan struct{}, 2), make(chan struct{})
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), func(ctx context.Context, m *consumer.Message) error {
		begun <- struct{}{}
		<-release
		return e.apply(ctx, m)
	}))
	<-begun
	r.cancel()
	eventually(t, "it drains", func() bool { return r.State().Phase == consumer.PhaseDraining })
	close(release)
	require.NoError(t, r.wait())
	require.Equal(t, []string{"id-0"}, e.ids(), "what waits does not begin")
	require.Equal(t, []int64{1}, committed(t, c.ListenAddrs(), "shop", "orders", 1))
}

func TestRun_TellsWhatItHasAndThatItHasStopped(t *testing.T) {
	c := fake(t)
	var log bytes.Buffer
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), new(effects).apply, tiers(10, time.Minute)))
	r.assigned(6)
	require.NoError(t, r.stop())
	require.Contains(t, log.String(), `partitions=6 topics="map[orders:3 shop.retry.1m:3]"`)
	require.Contains(t, log.String(), `level=INFO msg="drained and stopped" group=shop`)
}

func TestStop_HandlerThatNeverReturns_IsErrDrainTimeoutAndNotAcknowledged(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	produce(t, c.ListenAddrs(), "orders", record{"a", "id-0", "x"}, record{"b", "id-1", "x"})
	var e effects
	begun, release := make(chan struct{}), make(chan struct{})
	causes := make(chan error, 1)
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), func(ctx context.Context, m *consumer.Message) error {
		if m.ID() == "id-1" {
			return e.apply(ctx, m)
		}
		close(begun)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		<-release // ignores its context
		return nil
	}, func(c *consumer.Config) { c.Policy.DrainTimeout = 300 * time.Millisecond }))
	<-begun
	eventually(t, "the other", func() bool { return e.len() == 1 })
	asked := time.Now()
	require.ErrorIs(t, r.stop(), consumer.ErrDrainTimeout)
	require.Less(t, time.Since(asked), 300*time.Millisecond+5*time.Second)
	require.ErrorIs(t, <-causes, consumer.ErrDraining)
	require.Equal(t, []int64{0}, committed(t, c.ListenAddrs(), "shop", "orders", 1))
	close(release)
}

// A member that drains longer than its session keeps its membership by committing; its last commit counts, so nobody runs the message again.
func drainLongerThanSession(t *testing.T, brokers []string, topic string) {
	group := testenv.Name(t)
	log := memstore.NewLog()
	var e effects
	var runs atomic.Int64
	begun, release := make(chan struct{}), make(chan struct{})
	slow := func(ctx context.Context, m *consumer.Message) error {
		runs.Add(1)
		if runs.Load() == 1 {
			close(begun)
			<-release
		}
		return e.apply(ctx, m)
	}
	cs := &commits{}
	cfg := config(t, brokers, topic)
	cfg.Group = group
	cfg.Hooks = []kafka.Hook{cs}
	recs := []record{{"a", "id-0", "x"}}
	produce(t, brokers, topic, recs...)
	a := start(t, cfg, newPipe(t, newGuard(t, "shop", log), slow, func(c *consumer.Config) { c.Policy.DrainTimeout = 10 * time.Second }))
	<-begun
	b := start(t, cfg, newPipe(t, newGuard(t, "shop", log), slow))
	eventually(t, "a loses its assignment", func() bool {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		return cs.n > 1+2*3 // commits without news: it drains, and has done so for longer than its session of 1 s
	})
	close(release)
	eventually(t, "both are members", func() bool { return len(a.State().Assigned)+len(b.State().Assigned) == 2 && e.len() == 1 })
	require.NoError(t, a.stop())
	require.NoError(t, b.stop())
	require.EqualValues(t, 1, runs.Load())
	require.Empty(t, cs.failed)
	require.Empty(t, cs.back)
	e.once(t, recs)
}

func TestTrap03_DrainLongerThanTheSession_KeepsTheMembershipByCommitting(t *testing.T) {
	c := fake(t)
	require.NoError(t, c.CreateTopic("two", 2, nil))
	drainLongerThanSession(t, c.ListenAddrs(), "two")
}

func TestTrap03_DrainLongerThanTheSession_RealKafka(t *testing.T) {
	brokers := realBrokers(t)
	drainLongerThanSession(t, brokers, newTopic(t, brokers, testenv.Name(t), 2))
}

func TestRebalance_DrainTimeout_BoundsIt(t *testing.T) {
	c := fake(t, kfake.SeedTopics(2, "orders"))
	produce(t, c.ListenAddrs(), "orders", record{"a", "id-0", "x"})
	log := memstore.NewLog()
	begun := make(chan struct{})
	release := make(chan struct{})
	var once atomic.Bool
	h := func(ctx context.Context, _ *consumer.Message) error {
		if once.CompareAndSwap(false, true) {
			close(begun)
			<-release // ignores its context
		}
		return ctx.Err()
	}
	short := func(c *consumer.Config) { c.Policy.DrainTimeout = 300 * time.Millisecond }
	a := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", log), h, short))
	<-begun
	joined := time.Now()
	b := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", log), h, short))
	eventually(t, "the group goes on without the handler", func() bool { return len(a.State().Assigned) == 1 && len(b.State().Assigned) == 1 })
	require.Less(t, time.Since(joined), 10*time.Second)
	require.ErrorIs(t, a.stop(), consumer.ErrDrainTimeout, "it is told in the end")
	close(release)
	require.NoError(t, b.stop())
}
