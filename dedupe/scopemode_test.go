package dedupe_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// PROTOCOL.md, 1: a scope runs in one mode; another is refused by name until it is changed with all processes stopped.

// inMode is another process of w's scope, which comes in mode.
func (w *world) inMode(mode dedupe.Mode, change ...func(*dedupe.Config)) *dedupe.Guard {
	return w.process(append([]func(*dedupe.Config){func(c *dedupe.Config) {
		c.Mode, c.Log = mode, w.log
		if mode == dedupe.RedisOnly {
			c.Log = nil
		}
	}}, change...)...)
}

// noted is the mode that Redis has noted.
func (w *world) noted() dedupe.Mode {
	w.t.Helper()
	m, err := w.mem.NoteMode(context.Background(), scope, dedupe.RedisOnly)
	require.NoError(w.t, err)
	return m
}

func TestProtocol1_AnotherModeInTheScope_IsRefusedUntilChanged(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		for _, other := range allModes {
			if other == mode {
				continue
			}
			t.Run("then "+other.String(), func(t *testing.T) {
				ctx := context.Background()
				w := newWorld(t, mode)
				_, err := w.deliver("A")
				require.NoError(t, err)

				g := w.inMode(other)
				never := func(context.Context, *dedupe.Claim) error {
					t.Error("the handler ran")
					return nil
				}
				_, err = g.Do(ctx, delivery("A"), never)
				require.ErrorIs(t, err, dedupe.ErrWrongMode)
				require.ErrorContains(t, err, mode.String()+", not "+other.String())
				require.ErrorContains(t, err, "stop all of its processes and use ChangeMode")
				_, err = g.Check(ctx, dedupe.Environment{})
				require.ErrorIs(t, err, dedupe.ErrWrongMode)
				require.ErrorIs(t, g.Ready(ctx), dedupe.ErrWrongMode)
				_, err = w.process().Do(ctx, delivery("A"), never)
				require.NoError(t, err, "those in the old mode may still start")

				require.NoError(t, g.ChangeMode(ctx, audit))
				require.NoError(t, g.Ready(ctx))
				require.ErrorIs(t, w.process().Ready(ctx), dedupe.ErrWrongMode, "the old mode is the other one now")
				require.NoError(t, w.process().ChangeMode(ctx, audit))
				require.NoError(t, w.process().Ready(ctx), "and back")
			})
		}
	})
}

// Between Transactional and Logged all that is known is in the log.
func TestChangeMode_BetweenModesWithALog_KeepsWhatIsDone(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	_, err := w.deliver("A")
	require.NoError(t, err)
	g := w.inMode(dedupe.Transactional)
	require.NoError(t, g.ChangeMode(context.Background(), audit))
	out, err := g.Do(context.Background(), delivery("A"), w.apply)
	require.NoError(t, err)
	require.Equal(t, dedupe.Done, out.Verdict)
}

// The database was changed by hand, or restored: the log's row says which of its two modes runs, and Redis's note follows.
func TestProtocol1_NoteOfTheOtherModeWithALog_IsCorrected(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		for _, other := range loggedModes {
			require.NoError(t, w.mem.ChangeMode(context.Background(), scope, other, audit))
			require.NoError(t, w.process().Ready(context.Background()))
			require.Equal(t, mode, w.noted())
		}
	})
}

func TestProtocol1_ModeRefusedByTheLog_LeavesNoNoteInRedis(t *testing.T) {
	w := newWorld(t, dedupe.Logged, withoutRedis)
	require.NoError(t, w.Ready(context.Background()))
	require.ErrorIs(t, w.inMode(dedupe.Transactional).Ready(context.Background()), dedupe.ErrWrongMode)
	require.Equal(t, dedupe.RedisOnly, w.noted(), "the first to be noted is the test's")
}

// Redis decides nothing in a mode with a log, and so it may be away when its processes start.
func TestProtocol1_RedisAwayWhenEntering_IsEnteredWithoutTheNote(t *testing.T) {
	for _, f := range []fault{refused, lostRequest, broken} {
		inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
			w := newWorld(t, mode)
			w.redis.fails(f)
			out, err := w.deliver("A")
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			require.Equal(t, 1, w.redis.calls("notemode"))
		})
	}
}

func TestProtocol8_RedisAwayWhenEntering_RedisOnlyWaits(t *testing.T) {
	for _, f := range []fault{refused, lostRequest, broken} {
		w := newWorld(t, dedupe.RedisOnly)
		w.redis.fails(f, "notemode")
		_, err := w.deliver("A")
		require.ErrorIs(t, err, f.err())
		require.Zero(t, w.effects("A"))
		w.redis.fails(fine)
		_, err = w.deliver("A")
		require.NoError(t, err)
	}
}

// A flush takes the note with it. Then the marks are gone too, and RedisOnly stops at its next message; a mode with a log, for which
// Redis is only speed, goes on, and is not found by a RedisOnly that starts after it.
func TestProtocol1_FlushedNote_IsWrittenByTheNextToEnter(t *testing.T) {
	w := newWorld(t, dedupe.RedisOnly)
	require.NoError(t, w.Ready(context.Background()))
	w.mem.Flush()
	require.NoError(t, w.process().Ready(context.Background()))
	require.ErrorIs(t, w.inMode(dedupe.Logged).Ready(context.Background()), dedupe.ErrWrongMode)
	_, err := w.deliver("A")
	require.NoError(t, err, "the loss was accepted by the process that started")

	w = newWorld(t, dedupe.RedisOnly, func(c *dedupe.Config) { c.OnMemoryLoss = dedupe.ContinueOnMemoryLoss })
	require.NoError(t, w.Ready(context.Background()))
	w.mem.Flush()
	require.NoError(t, w.inMode(dedupe.Logged).Ready(context.Background()), "the first after the flush")
	_, err = w.deliver("A")
	require.ErrorIs(t, err, dedupe.ErrWrongMode, "and whoever goes on after a loss asks again whose the scope is")
	require.Zero(t, w.effects("A"))
}

// What the note says would be believed by the processes that start next.
func TestChangeMode_RedisAway_IsErrUnavailableAndChangesNothing(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		require.NoError(t, w.Ready(context.Background()))
		for _, other := range allModes {
			w.redis.fails(lostRequest)
			require.ErrorIs(t, w.inMode(other).ChangeMode(context.Background(), audit), dedupe.ErrUnavailable)
			w.redis.fails(fine)
			require.NoError(t, w.process().Ready(context.Background()))
		}
		require.NoError(t, w.inMode(otherLogged(mode), withoutRedis).ChangeMode(context.Background(), audit), "where there is none it is not missed")
	})
}

func otherLogged(m dedupe.Mode) dedupe.Mode { return dedupe.Transactional + dedupe.Logged - m }

func TestChangeMode_LogAway_MayBeCalledAgain(t *testing.T) {
	w := newWorld(t, dedupe.RedisOnly)
	require.NoError(t, w.Ready(context.Background()))
	g := w.inMode(dedupe.Logged)
	w.log.failsOnce(refused, "enter")
	require.ErrorIs(t, g.ChangeMode(context.Background(), audit), dedupe.ErrUnavailable)
	require.NoError(t, g.ChangeMode(context.Background(), audit))
	require.NoError(t, g.Ready(context.Background()))
}

// A store of another kind notes nothing, and is used as before.
func TestProtocol1_StoreThatIsNoMemory_IsEnteredWithoutANote(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	g := w.process(func(c *dedupe.Config) { c.Store = struct{ dedupe.Store }{w.redis} })
	require.NoError(t, g.Ready(context.Background()))
	require.NoError(t, g.ChangeMode(context.Background(), audit))
	require.Zero(t, w.redis.calls("notemode")+w.redis.calls("changemode"))
}
