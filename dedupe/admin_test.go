package dedupe_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

var audit = dedupe.Audit{By: "ann", Reason: "wrong price list"}

func TestInspect_AsksTheAuthority(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("A")
		require.NoError(t, err)
		rec, err := w.Inspect(context.Background(), w.key("A"))
		require.NoError(t, err)
		require.Equal(t, dedupe.StateDone, rec.State)
		rec, err = w.Inspect(context.Background(), w.key("B"))
		require.NoError(t, err)
		require.Equal(t, dedupe.StateAbsent, rec.State)
		w.authorityWire().fails(refused)
		_, err = w.Inspect(context.Background(), w.key("A"))
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
	})
}

func TestReopen_OfADeadKey_MakesItNew(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, errs := w.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler}, w.claim(w.Guard, delivery("A")))
		require.NoError(t, errs[0])
		w.bury(w.Guard, delivery("A"))
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Dead, out.Verdict)

		rec, err := w.Reopen(context.Background(), w.key("A"), audit)
		require.NoError(t, err)
		require.Equal(t, dedupe.StateFree, rec.State)
		require.Zero(t, rec.Failures)
		require.Equal(t, 1, rec.Generation)
		require.Equal(t, "ann: wrong price list", rec.Reason)

		_, err = w.Reopen(context.Background(), w.key("A"), audit)
		require.ErrorIs(t, err, dedupe.ErrNotDead)

		corrected := delivery("A")
		corrected.Fingerprint = dedupe.FingerprintOf([]byte("corrected"))
		out, err = w.Do(context.Background(), corrected, w.apply)
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict, "no conflict")
		require.Equal(t, 1, w.effects("A"))
		rec, err = w.Reopen(context.Background(), w.key("A"), audit)
		require.ErrorIs(t, err, dedupe.ErrNotDead)
		require.Equal(t, dedupe.StateDone, rec.State, "with the record as it is")
	})
}

func TestForget_MakesTheNextDeliveryTakeEffectAgain(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("A")
		require.NoError(t, err)
		require.NoError(t, w.Forget(context.Background(), w.key("A"), audit))
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Equal(t, 2, w.effects("A"))
		require.NoError(t, w.Forget(context.Background(), w.key("unknown"), audit))
	})
}

func TestForget_OfAClaimedKey_IsBusy(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		c := w.claim(w.Guard, delivery("A"))
		require.ErrorIs(t, w.Forget(context.Background(), w.key("A"), audit), dedupe.ErrBusy)
		_, errs := w.Complete(context.Background(), c)
		require.NoError(t, errs[0])
	})
}

// A Done left in Redis would be believed, so both need Redis; nothing is changed without it. Redis that goes away in between must not be left
// with a Done that the log has forgotten.
func TestForgetAndReopen_WithRedisAway_ChangeNothing(t *testing.T) {
	inEachMode(t, []dedupe.Mode{dedupe.Transactional, dedupe.Logged}, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.bury(w.Guard, delivery("B"))
		w.redis.fails(refused)
		require.ErrorIs(t, w.Forget(context.Background(), w.key("A"), audit), dedupe.ErrUnavailable)
		_, err = w.Reopen(context.Background(), w.key("B"), audit)
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
		require.Equal(t, dedupe.StateDone, w.row("A").State)
		require.Equal(t, dedupe.StateDead, w.row("B").State)
	})
}

func TestForget_RedisGoesAwayInBetween_LeavesNoDoneThatTheLogForgot(t *testing.T) {
	inEachMode(t, []dedupe.Mode{dedupe.Transactional, dedupe.Logged}, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.log.pauses(func(op string) {
			if op == "forget" {
				w.redis.fails(refused)
			}
		})
		require.ErrorIs(t, w.Forget(context.Background(), w.key("A"), audit), dedupe.ErrUnavailable)
		require.False(t, w.inRedis("A").State == dedupe.StateDone && w.row("A").State != dedupe.StateDone, "Done in Redis implies done in the log, at any moment")

		w.redis.fails(fine)
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
	})
}

// The log refuses: what it knows still stands, and Redis may learn it again.
func TestForget_LogAway_IsStillADuplicate(t *testing.T) {
	inEachMode(t, []dedupe.Mode{dedupe.Transactional, dedupe.Logged}, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.log.fails(refused, "forget")
		require.ErrorIs(t, w.Forget(context.Background(), w.key("A"), audit), dedupe.ErrUnavailable)
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}

func TestPurge_ForgetsInBoundsAndOnlyWhatMayBeForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged, withoutRedis)
		for i := range 5 {
			_, err := w.deliver(fmt.Sprint("done-", i))
			require.NoError(t, err)
		}
		w.bury(w.Guard, delivery("dead"))
		_, errs := w.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler}, w.claim(w.Guard, delivery("free")))
		require.NoError(t, errs[0])
		w.claim(w.Guard, delivery("abandoned"))

		_, err := w.Purge(context.Background(), 0)
		require.Error(t, err)
		n, err := w.Purge(context.Background(), 100)
		require.NoError(t, err)
		require.Zero(t, n, "nothing is old enough")

		time.Sleep(w.Retention())
		held := w.claim(w.Guard, delivery("held"))
		n, err = w.Purge(context.Background(), 3)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		n, err = w.Purge(context.Background(), 100)
		require.NoError(t, err)
		require.Equal(t, 4, n, "two done, one free, one abandoned")
		require.Equal(t, dedupe.StateDead, w.row("dead").State, "never purged")
		require.Equal(t, held.Owner(), w.row("held").Owner)
	})
}

// A message may still wait in a retry tier that is longer than the retention of done keys (refused by Check, but the number is kept).
func TestPurge_LeavesWhatARetryTierMayStillDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged, withoutRedis)
		_, err := w.Check(context.Background(), dedupe.Environment{LongestDelay: 2 * w.Retention()})
		require.ErrorContains(t, err, "retention-below-delay")
		_, errs := w.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler}, w.claim(w.Guard, delivery("free")))
		require.NoError(t, errs[0])
		time.Sleep(w.Retention())
		n, err := w.Purge(context.Background(), 10)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}

func TestPurge_InRedisOnly_IsNothing(t *testing.T) {
	w := newWorld(t, dedupe.RedisOnly)
	n, err := w.Purge(context.Background(), 10)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestPurgeEvery_PurgesAtOnceAndThenInRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged, withoutRedis)
		require.ErrorContains(t, w.PurgeEvery(context.Background(), time.Second-1), "at least 1s")
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- w.PurgeEvery(ctx, time.Hour) }()
		synctest.Wait()
		require.Equal(t, 1, w.log.calls("purge"))

		w.log.fails(refused, "purge") // the wire says that a whole batch was purged, and an error
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 2, w.log.calls("purge"), "an error ends the round")
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestRestored_IsForTheLogOnly(t *testing.T) {
	w := newWorld(t, dedupe.RedisOnly)
	require.ErrorIs(t, w.Restored(context.Background(), audit), dedupe.ErrWrongMode)
}

func TestReady_TellsWhetherTheAuthorityAnswers(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		require.NoError(t, w.Ready(context.Background()))
		w.authorityWire().fails(refused)
		require.ErrorIs(t, w.Ready(context.Background()), dedupe.ErrUnavailable)
		require.ErrorIs(t, w.process().Ready(context.Background()), dedupe.ErrUnavailable)
		w.authorityWire().fails(fine)
		if mode != dedupe.RedisOnly {
			w.redis.fails(refused)
		}
		require.NoError(t, w.Ready(context.Background()), "the fast path does not matter")
	})
}
