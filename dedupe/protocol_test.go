package dedupe_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

var loggedModes = []dedupe.Mode{dedupe.Transactional, dedupe.Logged}

// Redis answers what the log knows already: a duplicate does not reach the log.
func TestProtocol1_DoneOfThisIncarnation_IsBelieved(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.log.forgetCalls()
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict)
		require.Zero(t, w.log.calls("claim")+w.log.calls("inspect"))
		require.Equal(t, 1, w.effects("A"))
	})
}

// [M: redisdone]: the database went back, Redis did not. What it remembers of the other life is not believed; in Transactional the effect is
// gone and must come back.
func TestProtocol1_DoneOfAnotherIncarnation_IsNotBelieved(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		require.NoError(t, w.Ready(context.Background()))
		backup := w.db.Snapshot()
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.db.RestoreFrom(backup)
		require.NoError(t, w.Restored(context.Background(), audit))
		for _, g := range []*dedupe.Guard{w.process(), w.Guard} { // started since, and alive all the time
			out, err := g.Do(context.Background(), delivery("A"), w.apply)
			require.NoError(t, err)
			require.Contains(t, []dedupe.Verdict{dedupe.Claimed, dedupe.Done}, out.Verdict)
		}
		want := map[dedupe.Mode]int{dedupe.Transactional: 1, dedupe.Logged: 2} // outside of the database nothing was taken back
		require.Equal(t, want[mode], w.effects("A"))
		require.Equal(t, dedupe.StateDone, w.row("A").State)
	})
}

// [M: incstale]: without a heartbeat the known incarnation counts for nothing.
func TestProtocol1_DoneWithoutAHeartbeat_IsNotBelieved(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.log.fails(refused)
		_, err = w.deliver("A")
		require.ErrorIs(t, err, dedupe.ErrUnavailable, "the log is asked, and does not answer")
		require.Equal(t, 1, w.effects("A"))
	})
}

// A Done that RedisOnly, or anybody without an incarnation, left behind.
func TestProtocol1_DoneWithoutAnIncarnation_IsNotBelieved(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		before := newWorld(t, dedupe.RedisOnly)
		before.redis, before.mem = w.redis, w.mem
		_, err := before.process().Do(context.Background(), delivery("A"), before.apply)
		require.NoError(t, err)
		require.Equal(t, dedupe.StateDone, w.inRedis("A").State)
		require.NoError(t, w.ChangeMode(context.Background(), audit))
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
	})
}

// [M: deadbelieved, deadmarked]: Dead from Redis is confirmed in the log, and never believed for a marked copy.
func TestProtocol5_DeadFromRedis_IsConfirmedInTheLog(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		require.NoError(t, w.Ready(context.Background()))
		inc, err := w.db.Incarnation(context.Background())
		require.NoError(t, err)
		dead := func(id string) {
			rec := dedupe.Record{Key: w.key(id), State: dedupe.StateDead, Owner: "x", Incarnation: inc}
			require.NoError(t, w.mem.Learn(context.Background(), []dedupe.Record{rec}, time.Hour)[0])
		}
		dead("A")
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict, "the log knows nothing of it")
		require.Equal(t, 1, w.effects("A"))

		w.bury(w.Guard, delivery("B"))
		out, err = w.deliver("B")
		require.NoError(t, err)
		require.Equal(t, dedupe.Dead, out.Verdict)
		w.log.fails(refused)
		_, err = w.deliver("B")
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
		w.log.fails(fine)
		out, err = w.Do(context.Background(), redriven("B"), w.apply)
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Equal(t, 1, w.effects("B"))
	})
}

// [M: newowner]: a reply that got lost is asked for by the same statement and the same owner: won, same fence, nothing counted.
func TestProtocol2_LostReply_IsAskedWithTheSameOwner(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		w.authorityWire().failsOnce(lostReply, "claim")
		c := w.claim(w.Guard, delivery("A"))
		rec := w.authority("A")
		require.Equal(t, c.Owner(), rec.Owner)
		require.Equal(t, c.Fence(), rec.Fence)
		require.Zero(t, rec.Deaths)
		require.Equal(t, 1, c.Attempt())

		w.authorityWire().failsOnce(lostReply, "complete")
		outs, errs := w.Complete(context.Background(), c)
		require.NoError(t, errs[0])
		require.Equal(t, dedupe.Claimed, outs[0].Verdict)
	})
}

// Given up, the phantom is won again by the next delivery in the process, without a wait.
func TestProtocol2_GivenUpClaim_IsWonAgainByItsProcess(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			w.authorityWire().fails(lostReply, "claim")
			_, err := w.deliver("A")
			require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)
			w.authorityWire().fails(fine)
			phantom := w.authority("A").Owner
			c := w.claim(w.Guard, delivery("A"))
			require.Equal(t, phantom, c.Owner())
			require.Zero(t, w.authority("A").Deaths)
			_, errs := w.Release(context.Background(), dedupe.ReleaseReason{HandBack: true}, c)
			require.NoError(t, errs[0])

			// A lease later it is nobody's special any more.
			w.authorityWire().fails(lostReply, "claim")
			_, err = w.deliver("A")
			require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)
			w.authorityWire().fails(fine)
			time.Sleep(lease + time.Second)
			require.NotEqual(t, w.authority("A").Owner, w.claim(w.Guard, delivery("A")).Owner())
		})
	})
}

// [M: ownerreuse, oldafterdead]: once a release or a Dead was sent with an owner, whatever came back, another one asks.
func TestProtocol2_OwnerIsNeverReusedAfterRelease(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			for _, f := range []fault{fine, lostRequest, lostReply} {
				w := newWorld(t, mode)
				first := w.claim(w.Guard, delivery("A"))
				w.authorityWire().fails(f, "release", "bury")
				_, _ = w.Release(context.Background(), dedupe.ReleaseReason{HandBack: true}, first)
				time.Sleep(lease)
				second := w.claim(w.Guard, delivery("A"))
				require.NotEqual(t, first.Owner(), second.Owner())

				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				_, _ = w.Bury(ctx, second, "x", w.letter("A"))
				time.Sleep(lease)
				third, err := w.Claim(context.Background(), redriven("A"))
				require.NoError(t, err)
				require.NotEqual(t, second.Owner(), third.Claim.Owner())
			}
		})
	})
}

// [M: casnoinc]: after a restore only a claim made since is completed.
func TestProtocol2_ClaimOfBeforeARestore_IsNotCompletedAfterIt(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	c := w.claim(w.Guard, delivery("A"))
	require.NoError(t, w.Restored(context.Background(), audit))
	_, errs := w.Complete(context.Background(), c)
	require.ErrorIs(t, errs[0], dedupe.ErrStale)
	require.Equal(t, dedupe.StateClaimed, w.row("A").State, "nothing was written")
}

// The completion was given up in an outage. The next delivery in the process completes it, and does not run the handler again.
func TestProtocol2_GivenUpCompletion_IsCompletedByTheNextDelivery(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			w.authorityWire().fails(refused, "complete")
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := w.Do(ctx, delivery("A"), w.apply)
			require.ErrorIs(t, err, dedupe.ErrUnavailable)
			_, err = w.deliver("A")
			require.ErrorIs(t, err, dedupe.ErrUnavailable)
			w.authorityWire().fails(fine)

			other := delivery("A")
			other.Fingerprint = dedupe.FingerprintOf([]byte("another body"))
			_, err = w.Do(context.Background(), other, w.apply)
			require.ErrorIs(t, err, dedupe.ErrConflict)
			out, err := w.deliver("A")
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, out.Verdict)
			require.Equal(t, 1, w.effects("A"))
			require.Equal(t, dedupe.StateDone, w.authority("A").State)
		})
	})
}

// The same, and another process took the claim over meanwhile: a delivery like any other.
func TestProtocol2_GivenUpCompletion_ThatWasTakenOver_IsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged, withoutRedis)
		w.log.fails(refused, "complete")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := w.Do(ctx, delivery("A"), w.apply)
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
		w.log.fails(fine)
		time.Sleep(lease)
		other := w.claim(w.process(withoutRedis), delivery("A"))
		_, err = w.deliver("A")
		require.ErrorIs(t, err, dedupe.ErrBusy)
		require.Equal(t, other.Owner(), w.row("A").Owner)
	})
}

// [M: zerorows]: no row inserted does not mean done.
func TestProtocol3_RowOfAnotherThatIsNotDone_IsNotADuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Transactional)
		req := dedupe.ClaimRequest{Key: w.key("A"), Owner: "left by another mode", Lease: lease, Retention: time.Hour}
		require.NoError(t, w.db.Claim(context.Background(), []dedupe.ClaimRequest{req})[0].Err)
		_, err := w.deliver("A")
		require.ErrorIs(t, err, dedupe.ErrBusy)
		time.Sleep(lease)
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}

// [M: storecounts, unkcounts, lockfail, busycounts]: what is not the handler's fault never counts, however often.
func TestProtocol4_OutageNeverCounts(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		for _, cause := range []error{dedupe.ErrUnavailable, dedupe.ErrOutcomeUnknown, &dedupe.BusyError{}} {
			for range 5 {
				_, err := w.Do(context.Background(), delivery("A"), func(context.Context, *dedupe.Claim) error { return cause })
				require.Error(t, err)
			}
		}
		c := w.claim(w.Guard, delivery("A"))
		_, failures, err := w.Fail(context.Background(), c, errHandler)
		require.NoError(t, err)
		require.Equal(t, 1, failures)
		require.Zero(t, w.authority("A").Deaths)
	})
}

// A failure counts once though its release is repeated, and only when the log has recorded it; Redis gets the log's number.
func TestProtocol4_FailuresAreCountedByTheAuthority(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			for n := 1; n <= 3; n++ {
				c := w.claim(w.Guard, delivery("A"))
				if c.Attempt() != 0 { // known
					require.Equal(t, n, c.Attempt())
				}
				_, failures, err := w.Fail(context.Background(), c, errHandler)
				require.NoError(t, err)
				require.Equal(t, n, failures)
				w.authorityWire().failsOnce(lostReply, "release")
				counted, errs := w.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler}, c)
				require.NoError(t, errs[0])
				require.Equal(t, []int{n}, counted)
				require.Equal(t, n, w.authority("A").Failures)
				require.Equal(t, n, w.inRedis("A").Failures)
			}
			c := w.claim(w.Guard, delivery("A"))
			w.authorityWire().fails(refused, "release")
			_, errs := w.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler}, c)
			require.ErrorIs(t, errs[0], dedupe.ErrUnavailable)
			require.Equal(t, 3, w.authority("A").Failures)
			require.Equal(t, 3, w.inRedis("A").Failures)
		})
	})
}

// A takeover counts a death, and a death alone if the dead one was alone.
func TestProtocol4_TakeoversAreDeaths_AndFailuresAreNot(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			alone := delivery("A")
			for i := range 4 {
				alone.Alone = i >= 2
				c := w.claim(w.process(), alone)
				all, only := c.Deaths()
				require.Equal(t, i, all)
				require.Equal(t, max(0, i-2), only)
				require.Equal(t, 1, c.Attempt())
				time.Sleep(lease)
			}
		})
	})
}

// [M: deadfirst]: the letter, then Dead. Whatever fails, the message is somewhere.
func TestProtocol5_LetterBeforeDead(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		c := w.claim(w.Guard, delivery("A"))
		v, err := w.Bury(context.Background(), c, "no stock", func(context.Context) error {
			require.NotEqual(t, dedupe.StateDead, w.authority("A").State)
			require.NotEqual(t, dedupe.StateDead, w.inRedis("A").State)
			return errHandler
		})
		require.ErrorIs(t, err, errHandler)
		require.Zero(t, v)
		require.NotEqual(t, dedupe.StateDead, w.authority("A").State, "no letter, no Dead")
		_, errs := w.Release(context.Background(), dedupe.ReleaseReason{HandBack: true}, c)
		require.NoError(t, errs[0])

		w.bury(w.Guard, delivery("A"))
		require.Equal(t, dedupe.StateDead, w.authority("A").State)
		require.Equal(t, "for the test", w.authority("A").Reason)
		require.Equal(t, dedupe.StateDead, w.inRedis("A").State)
	})
}

// A crash at each step of burying: the message is applied, dead with a letter, or comes again.
func TestProtocol5_CrashAtEachStepOfBurying_LosesNothing(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			for _, f := range []fault{refused, lostRequest, lostReply} {
				for _, op := range []string{"inspect", "bury"} {
					w := newWorld(t, mode)
					w.authorityWire().fails(f, op)
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					_, err := w.Bury(ctx, w.claim(w.Guard, delivery("A")), "no stock", w.letter("A"))
					require.Error(t, err, "nothing is acknowledged")
					if op == "inspect" {
						require.Empty(t, w.letters)
					} else {
						require.Equal(t, 1, w.letters["A"])
					}

					w.authorityWire().fails(fine)
					time.Sleep(2 * lease)
					out, err := w.process().Do(context.Background(), delivery("A"), w.apply)
					require.NoError(t, err)
					if out.Verdict == dedupe.Dead {
						require.Equal(t, 1, w.letters["A"])
						require.Equal(t, 0, w.effects("A"))
					} else {
						require.Equal(t, 1, w.effects("A"))
					}
				}
			}
		})
	})
}

// Bury asks first: what is done or dead already needs no letter; the claim of another gets none.
func TestProtocol5_BuryingWhatIsSettled_WritesNoLetter(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			for _, end := range []dedupe.Verdict{dedupe.Done, dedupe.Dead} {
				w := newWorld(t, mode)
				c := w.claim(w.Guard, delivery("A"))
				w.mem.Flush()
				other := w.process(func(cfg *dedupe.Config) { cfg.OnMemoryLoss = dedupe.ContinueOnMemoryLoss })
				time.Sleep(lease)
				if end == dedupe.Dead {
					w.bury(other, delivery("A"))
					w.letters = map[string]int{}
				} else {
					_, err := other.Do(context.Background(), delivery("A"), w.apply)
					require.NoError(t, err)
				}
				v, err := w.Bury(context.Background(), c, "no stock", w.letter("A"))
				require.NoError(t, err)
				require.Equal(t, end, v)
				require.Empty(t, w.letters)
				closes(t, w.Guard)
			}
			if mode == dedupe.Transactional { // no claim in the log could be another's
				return
			}
			w := newWorld(t, mode)
			c := w.claim(w.Guard, delivery("A"))
			time.Sleep(lease)
			w.claim(w.process(), delivery("A"))
			_, err := w.Bury(context.Background(), c, "no stock", w.letter("A"))
			require.ErrorIs(t, err, dedupe.ErrStale)
			require.Empty(t, w.letters)
			closes(t, w.Guard)
		})
	})
}

// [M: deadover]: Dead is never written over done, which another delivery reached while the letter was written.
func TestProtocol5_DoneWhileTheLetterIsWritten_StaysDone(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			c := w.claim(w.Guard, delivery("A"))
			v, err := w.Bury(context.Background(), c, "no stock", func(ctx context.Context) error {
				time.Sleep(lease)
				_, err := w.process(withoutRedis).Do(ctx, delivery("A"), w.apply)
				return err
			})
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, v)
			require.Equal(t, dedupe.StateDone, w.row("A").State)
			require.Equal(t, dedupe.StateDone, w.inRedis("A").State)
		})
	})
}

// [M: noroute]: a marked copy claims a dead key, and only it; counts start again, the old fingerprint does not matter. It fails and is buried
// again with a new letter. Done stays a duplicate for it.
func TestProtocol5_MarkedCopy_ClaimsADeadKey(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		for range 2 {
			_, errs := w.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler}, w.claim(w.Guard, delivery("A")))
			require.NoError(t, errs[0])
		}
		w.bury(w.Guard, delivery("A"))
		corrected := redriven("A")
		corrected.Fingerprint = dedupe.FingerprintOf([]byte("corrected"))

		c := w.claim(w.Guard, corrected)
		require.True(t, c.Redriven())
		_, failures, err := w.Fail(context.Background(), c, errHandler)
		require.NoError(t, err)
		require.Equal(t, 1, failures)
		v, err := w.Bury(context.Background(), c, "again", w.letter("A"))
		require.NoError(t, err)
		require.Equal(t, dedupe.Dead, v)
		require.Equal(t, 2, w.letters["A"])

		out, err := w.Do(context.Background(), corrected, w.apply)
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		out, err = w.Do(context.Background(), corrected, w.apply)
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}

// [M: deadinc]: dead rows of an earlier life are free for all.
func TestProtocol5_DeadOfAnotherIncarnation_IsFree(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		w.bury(w.Guard, delivery("A"))
		require.NoError(t, w.Restored(context.Background(), audit))
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}

// Conflict is decided against Done; a claim in flight is Busy first; a dead key with another body is a conflict too, for its letter is another.
func TestProtocol5_Conflict_IsDecidedAgainstWhatIsSettled(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		other := delivery("A")
		other.Fingerprint = dedupe.FingerprintOf([]byte("another body"))
		c := w.claim(w.Guard, delivery("A"))
		out, err := w.Claim(context.Background(), other)
		require.NoError(t, err)
		require.Equal(t, dedupe.Busy, out.Verdict)
		_, errs := w.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler}, c)
		require.NoError(t, errs[0])
		_, err = w.deliver("A")
		require.NoError(t, err)

		_, err = w.Do(context.Background(), other, w.apply)
		require.ErrorIs(t, err, dedupe.ErrConflict)
		unnamed := other
		unnamed.Fingerprint = dedupe.NamedFingerprint("json:order", []byte("x"))
		out, err = w.Do(context.Background(), unnamed, w.apply)
		require.NoError(t, err, "fingerprints of different names are not compared")
		require.Equal(t, dedupe.Done, out.Verdict)
		unnamed.Fingerprint = dedupe.NoFingerprint
		out, err = w.Do(context.Background(), unnamed, w.apply)
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict)

		w.bury(w.Guard, delivery("B"))
		dead := delivery("B")
		dead.Fingerprint = other.Fingerprint
		out, err = w.Claim(context.Background(), dead)
		require.NoError(t, err)
		require.Equal(t, dedupe.Conflict, out.Verdict)
		require.Equal(t, dedupe.StateDead, w.authority("B").State, "untouched")
		require.Equal(t, 1, w.effects("A"))
	})
}

// DECISIONS.md, 7: Redis's Done with another fingerprint is confirmed in the log before a letter.
func TestProtocol5_ConflictFromRedis_IsConfirmedInTheLog(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		require.NoError(t, w.Ready(context.Background()))
		inc, err := w.db.Incarnation(context.Background())
		require.NoError(t, err)
		lie := dedupe.Record{Key: w.key("A"), State: dedupe.StateDone, Owner: "x", Incarnation: inc, Fingerprint: dedupe.FingerprintOf([]byte("y"))}
		require.NoError(t, w.mem.Learn(context.Background(), []dedupe.Record{lie}, time.Hour)[0])
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}

// Redis won and the log says otherwise: Redis is told, so that the next one does not ask.
func TestProtocol1_RedisIsToldWhatTheLogSays(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.bury(w.Guard, delivery("B"))
		w.mem.Flush()
		for id, state := range map[string]dedupe.State{"A": dedupe.StateDone, "B": dedupe.StateDead} {
			_, err := w.deliver(id)
			require.NoError(t, err)
			require.Equal(t, state, w.inRedis(id).State)
		}
		require.Equal(t, 1, w.effects("A"))
	})
}

// RedisOnly waits for Redis; nothing is run without it.
func TestProtocol8_RedisAway_MessagesWait(t *testing.T) {
	w := newWorld(t, dedupe.RedisOnly)
	w.redis.fails(refused)
	_, err := w.deliver("A")
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	w.redis.fails(fine)
	require.NoError(t, w.Ready(context.Background()))
	w.redis.fails(refused)
	_, err = w.deliver("A")
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	require.Zero(t, w.effects("A"))
}

// Redis is dead, or flushed between any two steps, or answers nothing but the unknown: the same effects.
func TestProtocol1_WhateverRedisDoes_TheEffectsAreTheSame(t *testing.T) {
	inEachMode(t, loggedModes, func(t *testing.T, mode dedupe.Mode) {
		for _, f := range []fault{fine, refused, lostRequest, lostReply, broken} {
			t.Run(f.String(), func(t *testing.T) {
				w := newWorld(t, mode)
				w.redis.fails(f)
				w.redis.pauses(func(string) { w.mem.Flush() })
				w.log.pauses(func(string) { w.mem.Flush() })
				for range 3 {
					for _, g := range []*dedupe.Guard{w.Guard, w.process()} {
						out, err := g.Do(context.Background(), delivery("A"), w.apply)
						require.NoError(t, err)
						require.Equal(t, f != fine, out.Degraded || out.Claim != nil && out.Claim.Degraded())
					}
				}
				require.Equal(t, 1, w.effects("A"))
				_, err := w.Do(context.Background(), delivery("B"), func(context.Context, *dedupe.Claim) error { return errHandler })
				require.ErrorIs(t, err, errHandler)
				require.Equal(t, 1, w.row("B").Failures)
			})
		}
	})
}
