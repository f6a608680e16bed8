package dedupe_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// commitUnknown is a handler whose commit reply was lost: committed says whether the commit happened all the same.
func (w *world) commitUnknown(committed bool, answer error) func(context.Context, *dedupe.Claim) error {
	return func(ctx context.Context, c *dedupe.Claim) error {
		if committed {
			require.NoError(w.t, w.apply(ctx, c))
		}
		c.Note(dedupe.CommitUnknown)
		return answer
	}
}

// A plain read that finds no row does not prove that the server will not commit yet, and asking again proves it no better: only the
// insert of the next run does, since it waits for the old transaction.
func TestProtocol3_UnknownCommit_WhoseRowIsAbsent_IsSettledByTheNextRunsInsert(t *testing.T) {
	for name, answer := range map[string]error{"swallowed": nil, "returned": dedupe.ErrOutcomeUnknown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, dedupe.Transactional)
				_, err := w.Do(context.Background(), delivery("A"), w.commitUnknown(false, answer))
				require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)
				require.Equal(t, dedupe.StateAbsent, w.row("A").State, "nothing was counted")

				out, err := w.deliver("A")
				require.NoError(t, err)
				require.Equal(t, dedupe.Claimed, out.Verdict)
				require.Equal(t, 1, w.effects("A"))
				closes(t, w.Guard)
			})
		})
	}
}

// The old transaction commits after its delivery was given up: the next run must meet the row as another's, whatever the log thinks of
// an owner that repeats itself.
func TestProtocol3_UnknownCommit_ThatHappensLater_IsADuplicateForTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Transactional, withoutRedis)
		var first *dedupe.Claim
		_, err := w.Do(context.Background(), delivery("A"), func(_ context.Context, c *dedupe.Claim) error {
			first = c
			c.Note(dedupe.CommitUnknown)
			return dedupe.ErrOutcomeUnknown
		})
		require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)

		tx := w.db.Begin()
		tx.Set("A", 1)
		require.NoError(t, tx.Commit())
		require.NoError(t, w.db.Complete(context.Background(), []dedupe.CompleteRequest{first.RowToRecord()})[0].Err)

		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}

// A dead letter that Do's function stored itself: whatever becomes of Dead in the store, the claim does not stay in flight.
func TestDo_BuryInAnOutage_LeavesNothingInFlight(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		w.authorityWire().fails(refused, "inspect")
		_, err := w.Do(context.Background(), delivery("A"), func(context.Context, *dedupe.Claim) error { return dedupe.Bury("no stock") })
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
		closes(t, w.Guard)

		w.authorityWire().fails(fine)
		w.Guard = w.process()
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict, "handed back, not left to its lease")
		if mode == dedupe.Logged {
			require.Zero(t, w.row("A").Deaths)
		}
	})
}

// The letter lies when the claim is found to be another's: acknowledge, and say so by a verdict that means it.
func TestDo_BuryOfAClaimTakenOver_IsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		w.log.failsOnce(refused, "bury")
		out, err := w.Do(context.Background(), delivery("A"), func(_ context.Context, c *dedupe.Claim) error {
			go func() {
				time.Sleep(time.Millisecond) // between the first try and the second
				w.db.Release(context.Background(), []dedupe.ReleaseRequest{{Grip: dedupe.Grip{Key: c.Key(), Owner: c.Owner(), Incarnation: w.row("A").Incarnation}}})
			}()
			return dedupe.Bury("no stock")
		})
		require.NoError(t, err)
		require.Equal(t, dedupe.Dead, out.Verdict)
		require.Nil(t, out.Claim, "there is no claim any more")
	})
}

// After ErrNotRecorded the claim is left to its lease, and the guard does not wait for it.
func TestDo_NotRecorded_LeavesTheClaimButNothingInFlight(t *testing.T) {
	w := newWorld(t, dedupe.Transactional)
	_, err := w.Do(context.Background(), delivery("A"), func(context.Context, *dedupe.Claim) error { return nil })
	require.ErrorIs(t, err, dedupe.ErrNotRecorded)
	require.EqualError(t, err, "dedupe: complete "+w.key("A").String()+": handler returned nil without recording: wrap it in sqlstore.Transactional, or call Log.Record in its transaction")
	require.Equal(t, dedupe.StateClaimed, w.inRedis("A").State)
	require.Equal(t, dedupe.StateAbsent, w.row("A").State)
	closes(t, w.Guard)
}

// A drain or a revoke cancels the caller's context; what the handler makes of that is not a failure of the message. A deadline is: that is how
// a handler's timeout looks.
func TestProtocol4_CancelledDelivery_DoesNotCount_AndATimeoutDoes(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			ctx, cancel := context.WithCancelCause(context.Background())
			_, err := w.Do(ctx, delivery("A"), func(ctx context.Context, _ *dedupe.Claim) error {
				cancel(errHandler)
				<-ctx.Done()
				return ctx.Err()
			})
			require.ErrorIs(t, err, context.Canceled)
			require.Zero(t, w.authority("A").Failures)

			tctx, stop := context.WithTimeout(context.Background(), time.Second)
			defer stop()
			_, err = w.Do(tctx, delivery("A"), func(ctx context.Context, _ *dedupe.Claim) error {
				<-ctx.Done()
				return ctx.Err()
			})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 1, w.authority("A").Failures)
			require.Equal(t, dedupe.StateFree, w.authority("A").State)
		})
	})
}

// Busy is nobody's failure in any mode, and the claim is handed back: left to its lease, it would be counted as a death.
func TestProtocol4_HandlerThatReturnsBusy_IsHandedBackUncounted(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.Do(context.Background(), delivery("A"), func(context.Context, *dedupe.Claim) error {
			return &dedupe.BusyError{Key: w.key("other"), RetryIn: time.Second}
		})
		require.ErrorIs(t, err, dedupe.ErrBusy)
		var busy *dedupe.BusyError
		require.ErrorAs(t, err, &busy)
		require.Equal(t, time.Second, busy.RetryIn)
		require.Zero(t, w.authority("A").Failures)

		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Zero(t, w.authority("A").Deaths)
		closes(t, w.Guard)
	})
}

// The store refuses the completion for good (a value that it cannot take). The effect is out: this process never runs it again, and does
// not acknowledge it either.
func TestComplete_ErrorThatRepeatingDoesNotMend_IsNeverRunAgainInThisProcess(t *testing.T) {
	inEachMode(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			w.authorityWire().fails(broken, "complete")
			for range 3 {
				_, err := w.deliver("A")
				require.ErrorIs(t, err, errBroken)
				require.Equal(t, 1, w.effects("A"))
				time.Sleep(2 * lease)
			}
			w.authorityWire().fails(fine)
			out, err := w.deliver("A")
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, out.Verdict)
			require.Equal(t, 1, w.effects("A"))
			closes(t, w.Guard)
		})
	})
}

// [M: okrelease]: a handler returned success and its completion was given up in an outage; whoever then releases or buries the claim all the
// same must not undo it.
func TestProtocol2_SuccessThatWasGivenUp_IsNeitherReleasedNorBuried(t *testing.T) {
	inEachMode(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			c := w.claim(w.Guard, delivery("A"))
			w.authorityWire().fails(refused, "complete")
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, errs := w.Complete(ctx, c)
			require.ErrorIs(t, errs[0], dedupe.ErrUnavailable)

			_, errs = w.Release(context.Background(), dedupe.ReleaseReason{HandBack: true}, c)
			require.ErrorIs(t, errs[0], dedupe.ErrStale)
			_, err := w.Bury(context.Background(), c, "gave up", w.letter("A"))
			require.ErrorIs(t, err, dedupe.ErrStale)
			require.Empty(t, w.letters)
			require.Equal(t, dedupe.StateClaimed, w.authority("A").State)

			w.authorityWire().fails(fine)
			out, err := w.deliver("A")
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, out.Verdict)
			require.Zero(t, w.effects("A"), "the handler is not run again")
		})
	})
}

// The rows of a dead key of an earlier life are free for all, and their counts start again: else the first failure after a restore
// would bury.
func TestFail_DeadRowOfAnotherIncarnation_CountsFromOne(t *testing.T) {
	w := newWorld(t, dedupe.Transactional)
	for range 3 {
		_, errs := w.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler}, w.claim(w.Guard, delivery("A")))
		require.NoError(t, errs[0])
	}
	w.bury(w.Guard, delivery("A"))
	_, err := w.db.Restored(context.Background(), dedupe.Audit{})
	require.NoError(t, err)

	w.Guard = w.process()
	out, failures, err := w.Fail(context.Background(), w.claim(w.Guard, delivery("A")), errHandler)
	require.NoError(t, err)
	require.Equal(t, dedupe.Claimed, out.Verdict)
	require.Equal(t, 1, failures)
}

// A goroutine that the handler left behind may still read its claim.
func TestFail_ClaimReadMeanwhile_IsNoRace(t *testing.T) {
	w := newWorld(t, dedupe.Transactional)
	c := w.claim(w.Guard, delivery("A"))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 100 {
			_ = c.Attempt()
		}
	}()
	_, _, err := w.Fail(context.Background(), c, errHandler)
	require.NoError(t, err)
	<-ended
}

// NoEffect's row is locked by another delivery's transaction: Busy, and the fast path is handed back.
func TestProtocol3_NoEffectThatWaitsForALock_IsBusy(t *testing.T) {
	w := newWorld(t, dedupe.Transactional)
	w.log.fails(locked, "complete")
	_, err := w.Do(context.Background(), delivery("A"), func(_ context.Context, c *dedupe.Claim) error {
		c.NoEffect()
		return nil
	})
	require.ErrorIs(t, err, dedupe.ErrBusy)
	require.Equal(t, dedupe.StateFree, w.inRedis("A").State)
	closes(t, w.Guard)
}

// The authority was away when the claim was to be freed, for longer than the lease: nobody died, and this process knows.
func TestRelease_ThatSurelyDidNotArrive_IsNoDeathForThisProcess(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			for range 5 {
				c := w.claim(w.Guard, delivery("A"))
				w.authorityWire().fails(refused)
				_, errs := w.Release(context.Background(), dedupe.ReleaseReason{HandBack: true}, c)
				require.ErrorIs(t, errs[0], dedupe.ErrUnavailable)
				time.Sleep(2 * lease)
				_, err := w.Claim(context.Background(), delivery("A"))
				require.ErrorIs(t, err, dedupe.ErrUnavailable)
				time.Sleep(2 * lease)
				w.authorityWire().fails(fine)
			}
			c := w.claim(w.Guard, delivery("A"))
			deaths, _ := c.Deaths()
			require.Zero(t, deaths)

			time.Sleep(2 * lease) // as it looks to another process
			deaths, _ = w.claim(w.process(), delivery("A")).Deaths()
			require.Equal(t, 1, deaths)
			_, err := w.Complete(context.Background(), c)
			require.ErrorIs(t, err[0], dedupe.ErrStale)
		})
	})
}
