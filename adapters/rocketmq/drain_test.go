package rocketmq_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// failingLog is a log that can be away.
type failingLog struct {
	dedupe.Log
	away atomic.Bool
}

func (l *failingLog) down() error {
	if l.away.Load() {
		return fmt.Errorf("%w: %w", dedupe.ErrUnavailable, errTest)
	}
	return nil
}

func (l *failingLog) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	if err := l.down(); err != nil {
		out := make([]dedupe.Reply, len(reqs))
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	return l.Log.Claim(ctx, reqs)
}

func (l *failingLog) Inspect(ctx context.Context, keys []dedupe.Key) ([]dedupe.Record, error) {
	if err := l.down(); err != nil {
		return nil, err
	}
	return l.Log.Inspect(ctx, keys)
}

func (l *failingLog) Incarnation(ctx context.Context) (dedupe.Incarnation, error) {
	if err := l.down(); err != nil {
		return "", err
	}
	return l.Log.Incarnation(ctx)
}

// stream sends records until it is stopped, and then returns them.
func (w world) stream(t testing.TB, every time.Duration) (stop func() []record) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	var recs []record
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			rec := record{fmt.Sprint("k", i%20), fmt.Sprint("id-", i), fmt.Sprint(i)}
			for w.trySend(t, message(w.topic, rec)) != nil { // a copy too many is a duplicate
				select {
				case <-done:
					return
				case <-tick.C:
				}
			}
			recs = append(recs, rec)
		}
	}()
	var once sync.Once
	stop = func() []record {
		once.Do(func() { close(done) })
		<-ended
		return recs
	}
	t.Cleanup(func() { stop() })
	return stop
}

// Traps 30, 31 and 32: the client's own Shutdown waits for nothing, and Suspend does not stop what it has fetched.
func TestTraps30To32_Drain_LosesNothingAndRunsNothingTwice(t *testing.T) { drains(t, false) }

func drains(t *testing.T, orderly bool) {
	w := newWorld(t, 4)
	cfg := w.config(t)
	cfg.Orderly = orderly
	var calls atomic.Int64
	var e effects
	stop := w.stream(t, 4*time.Millisecond)
	log := memstore.NewLog()
	rounds := 4
	if orderly {
		rounds = 1 // each start waits three seconds for its queues
	}
	for range rounds {
		from := e.len()
		r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), func(ctx context.Context, m *consumer.Message) error {
			calls.Add(1)
			time.Sleep(20 * time.Millisecond) // work
			return e.apply(context.WithoutCancel(ctx), m)
		}))
		eventually(t, "it is at work", func() bool { return e.len() > from+60 })
		begin := time.Now()
		require.NoError(t, r.stop())
		require.Less(t, time.Since(begin), 10*time.Second)
	}
	recs := stop()
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "all took effect", func() bool { return e.distinct() == len(recs) })
	require.NoError(t, r.stop())
	require.Equal(t, len(recs), e.len())
	w.requireCommitted(t, 4, len(recs))
	redelivered := 0
	for _, x := range e.all() {
		if x.m.Redeliveries > 0 {
			redelivered++
		}
	}
	require.Zero(t, redelivered)
}

func TestDrain_AHandlerThatNeverReturns_EndsRunWithinItsBound(t *testing.T) {
	w := newWorld(t, 1)
	w.send(t, record{"k", "id-0", "x"})
	began, release := make(chan struct{}), make(chan struct{})
	g := newGuard(t, "shop", nil) // closed after the handler has returned
	t.Cleanup(func() { close(release) })
	r := start(t, w.config(t), newPipe(t, g, func(context.Context, *consumer.Message) error {
		close(began)
		<-release
		return nil
	}, func(c *consumer.Config) { c.Policy.DrainTimeout = 100 * time.Millisecond }))
	<-began
	begin := time.Now()
	require.ErrorIs(t, r.stop(), consumer.ErrDrainTimeout)
	require.Less(t, time.Since(begin), 15*time.Second)
	require.Zero(t, w.committed(t, 1))
}

// Trap 33: what is here is bounded, whatever waits at the broker.
func TestTrap33_MaxWaiting_BoundsWhatIsHere(t *testing.T) {
	w := newWorld(t, 1)
	recs := numbered(600, 10)
	w.send(t, recs...)
	cfg := w.config(t)
	cfg.MaxWaiting = 64
	var e effects
	release := make(chan struct{})
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), func(ctx context.Context, m *consumer.Message) error {
		<-release
		return e.apply(ctx, m)
	}))
	eventually(t, "something is here", func() bool { return r.Inside() > 16 })
	for range 10 {
		require.LessOrEqual(t, r.Inside(), 64+33)
		time.Sleep(tick)
	}
	close(release)
	eventually(t, "all took effect", func() bool { return e.distinct() == len(recs) })
	require.NoError(t, r.stop())
	require.Equal(t, len(recs), e.len())
}
