package lanes_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/lanes"
)

var errAway = errors.New("store is away")

// store is asked by a gate.
type store struct {
	mu    sync.Mutex
	away  bool
	asked []time.Time
	now   int // questions under way
	ask   func(context.Context)
}

func (s *store) ready(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	if s.now++; s.now > 1 {
		panic("two questions at once")
	}
	defer func() { s.now-- }()
	if s.ask != nil {
		s.mu.Unlock()
		defer s.mu.Lock()
		s.ask(ctx)
	}
	if s.away {
		return errAway
	}
	return nil
}

func (s *store) set(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// waits are the times between the questions that were asked since the last call, the first one since begin.
func (s *store) waits(begin time.Time) (out []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.asked {
		out = append(out, at.Sub(begin))
		begin = at
	}
	s.asked = nil
	return out
}

func gated(s *store) (*lanes.Pool, *lanes.Gate) {
	p := lanes.NewPool(4)
	return p, lanes.NewGate(p, s.ready, slog.New(slog.DiscardHandler))
}

func requirePhase(t *testing.T, g *lanes.Gate, want consumer.Phase, cause error) {
	t.Helper()
	phase, err := g.Phase()
	require.Equal(t, want, phase)
	require.Equal(t, cause, err)
}

// around says that d is want, give or take the jitter.
func around(t *testing.T, want, d time.Duration) {
	t.Helper()
	require.InDelta(t, want.Seconds(), d.Seconds(), 0.2*want.Seconds()+0.001)
}

func TestGate_Outage_HoldsWorkUntilTheStoreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{away: true}
		pool, g := gated(s)
		defer g.Start(t.Context())()
		runs := 0
		q := lanes.NewPartition(t.Context(), pool, lanes.Config[string]{Run: func(_ context.Context, vs []string) []lanes.Result { runs++; return settle(len(vs)) }})
		begin := time.Now()
		for range 3 {
			g.Outage(errAway) // three messages met it
		}
		q.Deliver(0, nil, "")
		pass(time.Hour)
		require.Zero(t, runs)
		require.False(t, q.Room())
		requirePhase(t, g, consumer.PhasePaused, errAway)
		waits := s.waits(begin)
		for i, want := range []time.Duration{200, 400, 800, 1600, 3200, 5000, 5000, 5000} {
			around(t, want*time.Millisecond, waits[i])
		}
		s.set(false)
		pass(10 * time.Second)
		require.Equal(t, 1, runs)
		require.True(t, q.Room())
		requirePhase(t, g, consumer.PhaseRunning, nil)
	})
}

func TestGate_StoreThatComesAndGoes_IsAskedSeldomUntilThereWasCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{} // it answers when it is asked, and fails at work
		_, g := gated(s)
		defer g.Start(t.Context())()
		for _, want := range []time.Duration{200, 400, 800, 1600} {
			begin := time.Now()
			g.Outage(errAway)
			pass(3 * time.Second)
			waits := s.waits(begin)
			require.Len(t, waits, 1)
			around(t, want*time.Millisecond, waits[0])
		}
		pass(11 * time.Second)
		begin := time.Now()
		g.Outage(errAway)
		pass(time.Second)
		around(t, 200*time.Millisecond, s.waits(begin)[0])
	})
}

func TestGate_PauseOfTheUser_StandsBesideTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{away: true}
		pool, g := gated(s)
		defer g.Start(t.Context())()
		q := lanes.NewPartition(t.Context(), pool, lanes.Config[string]{})
		g.Pause()
		requirePhase(t, g, consumer.PhasePaused, nil)
		g.Outage(errAway)
		g.Resume()
		require.False(t, q.Room(), "the outage goes on")
		requirePhase(t, g, consumer.PhasePaused, errAway)
		g.Pause()
		s.set(false)
		pass(time.Minute)
		require.False(t, q.Room(), "the user's pause goes on")
		requirePhase(t, g, consumer.PhasePaused, nil)
		g.Resume()
		require.True(t, q.Room())
	})
}

func TestGate_StoreThatPanics_IsAwayAndAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := 3
		s := &store{ask: func(context.Context) {
			if panics--; panics >= 0 {
				panic("driver")
			}
		}}
		_, g := gated(s)
		defer g.Start(t.Context())()
		g.Outage(errAway)
		pass(time.Minute)
		require.Len(t, s.waits(time.Now()), 4)
		requirePhase(t, g, consumer.PhaseRunning, nil)
	})
}

func TestGate_StoreThatHangs_IsAskedAgainAfterATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{away: true, ask: func(ctx context.Context) { <-ctx.Done() }}
		_, g := gated(s)
		defer g.Start(t.Context())()
		begin := time.Now()
		g.Outage(errAway)
		pass(7 * time.Second)
		waits := s.waits(begin)
		require.Len(t, waits, 2)
		around(t, 400*time.Millisecond, waits[1]-5*time.Second)
	})
}

func TestGate_CauseThatNobodyTold_IsStillAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g := gated(&store{away: true})
		defer g.Start(t.Context())()
		g.Outage(nil)
		requirePhase(t, g, consumer.PhasePaused, lanes.ErrOutage)
	})
}

func TestGate_StopDuringAnOutage_BeginsNothingAndTheNextStartIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{away: true}
		pool, g := gated(s)
		q := lanes.NewPartition(t.Context(), pool, lanes.Config[string]{})
		g.Outage(errAway)
		require.True(t, q.Room(), "not started")
		ctx, cancel := context.WithCancel(t.Context())
		stop := g.Start(ctx)
		g.Outage(errAway)
		cancel()
		pass(time.Minute)
		require.False(t, q.Room(), "what waits is dropped by the drain, not begun")
		require.Empty(t, s.waits(time.Now()))
		stop()
		ended, cancel := context.WithCancel(t.Context())
		stop = g.Start(ended)
		cancel()
		g.Outage(errAway)
		requirePhase(t, g, consumer.PhaseRunning, nil)
		stop()
		g.Outage(errAway)
		requirePhase(t, g, consumer.PhaseRunning, nil)
		require.True(t, q.Room())

		g.Pause()
		stop = g.Start(t.Context())
		g.Outage(errAway)
		stop()
		require.False(t, q.Room(), "the user's pause outlives a run")
	})
}

func TestSleep_EndsWithTheTimeOrTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		require.NoError(t, lanes.Sleep(t.Context(), time.Hour))
		require.Equal(t, time.Hour, time.Since(begin))
		require.NoError(t, lanes.Sleep(t.Context(), -1))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errAway) })
		begin = time.Now()
		require.Equal(t, errAway, lanes.Sleep(ctx, time.Hour))
		require.Equal(t, time.Minute, time.Since(begin))
		require.Equal(t, errAway, lanes.Sleep(ctx, 0), "ended before")
	})
}
