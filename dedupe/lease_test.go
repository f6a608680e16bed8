package dedupe_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

var leasedModes = []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}

func TestLease_OfALongHandler_IsRenewedAtAThird(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			other := w.process()
			out, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
				for range 20 { // five leases
					time.Sleep(lease / 4)
					if mode == dedupe.Transactional { // one lease of Busy is believed, then the log is asked, where nothing stands in the way
						require.Equal(t, dedupe.StateClaimed, w.inRedis("A").State)
						require.Greater(t, w.inRedis("A").LeaseLeft, lease/3)
						continue
					}
					out, err := other.Claim(context.Background(), delivery("A"))
					require.NoError(t, err)
					require.Equal(t, dedupe.Busy, out.Verdict)
					require.Greater(t, w.authority("A").LeaseLeft, lease/3)
				}
				return w.apply(ctx, c)
			})
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			require.Zero(t, w.hooks.losses())
			require.InDelta(t, 15, w.redis.calls("renew"), 1)
		})
	})
}

// One ticker renews all claims of a process together, and it lives only while there are any (the bubble would not end otherwise).
func TestLease_OfManyClaims_AreRenewedTogether(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			var stops []func() error
			var claims []*dedupe.Claim
			for _, id := range []string{"A", "B", "C", "D"} {
				c := w.claim(w.Guard, delivery(id))
				_, stop := w.Hold(context.Background(), c)
				claims, stops = append(claims, c), append(stops, stop)
			}
			time.Sleep(lease + lease/6)
			synctest.Wait()
			require.Equal(t, 3, w.authorityWire().calls("renew"))
			for _, stop := range stops {
				require.NoError(t, stop())
			}
			time.Sleep(lease)
			require.Equal(t, 3, w.authorityWire().calls("renew"), "nothing is held, nothing is renewed")

			// Completed though expired: nobody took them.
			_, errs := w.Complete(context.Background(), claims...)
			require.Equal(t, []error{nil, nil, nil, nil}, errs)
			closes(t, w.Guard)
		})
	})
}

func TestLease_TakenByAnother_EndsTheHandlersContextAndIsStale(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			authority := w.authorityWire()
			_, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
				authority.fails(refused, "renew")
				time.Sleep(lease - time.Millisecond)
				require.NoError(t, ctx.Err())
				time.Sleep(time.Millisecond) // over by our own clock, though no answer said so
				synctest.Wait()
				require.ErrorIs(t, context.Cause(ctx), dedupe.ErrLeaseLost)
				if mode == dedupe.Logged {
					w.mem.Flush() // where it was renewed, and would be believed for another lease
				}
				w.claim(w.process(), delivery("A"))
				return w.apply(ctx, c)
			})
			require.ErrorIs(t, err, dedupe.ErrStale)
			require.Equal(t, 1, w.hooks.losses())
			rec := w.authority("A")
			require.Equal(t, dedupe.StateClaimed, rec.State, "the other's claim is untouched")
			require.Equal(t, 1, rec.Deaths)
		})
	})
}

func TestLease_FoundToBeAnothers_EndsTheHandlersContextAtTheNextRenewal(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			_, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
				store := dedupe.Store(w.db)
				if mode == dedupe.RedisOnly {
					store = w.mem
				}
				grip := dedupe.Grip{Key: c.Key(), Owner: c.Owner(), Incarnation: w.authority("A").Incarnation}
				require.NoError(t, store.Release(context.Background(), []dedupe.ReleaseRequest{{Grip: grip}})[0].Err) // by whatever accident
				<-ctx.Done()
				return context.Cause(ctx)
			})
			require.ErrorIs(t, err, dedupe.ErrLeaseLost)
			require.Equal(t, 1, w.hooks.losses())
			require.Zero(t, w.authority("A").Failures, "not the handler's failure")
		})
	})
}

// Late success is completed if nobody took the claim.
func TestLease_ExpiredAndNotTaken_IsCompletedLate(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			out, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
				w.authorityWire().fails(refused, "renew")
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), dedupe.ErrLeaseLost)
				time.Sleep(lease)
				return w.apply(ctx, c)
			})
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			require.Equal(t, dedupe.StateDone, w.authority("A").State)
		})
	})
}

// Where the row is the fence, a lost lease in Redis is nothing to the handler.
// The process stands still between the claim and the handler (SIGSTOP, a machine that is moved): somebody else may have begun meanwhile.
func TestLease_OverBeforeTheHandlerBegins_HandlerDoesNotRun(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			w.authorityWire().pauses(func(op string) {
				if op == "claim" {
					time.Sleep(lease + time.Second)
				}
			})
			_, err := w.Do(context.Background(), delivery("A"), w.apply)
			require.ErrorIs(t, err, dedupe.ErrLeaseLost)
			require.Zero(t, w.effects("A"))
			require.Zero(t, w.authority("A").Failures)
			require.Equal(t, dedupe.StateFree, w.authority("A").State, "handed back at once")
			require.Equal(t, 1, w.hooks.losses())

			w.authorityWire().pauses(nil)
			out, err := w.Do(context.Background(), delivery("A"), w.apply)
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			require.Equal(t, 1, w.effects("A"))
		})
	})
}

func TestLease_LostInTransactional_CancelsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Transactional)
		_, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
			w.mem.Flush()
			time.Sleep(3 * lease)
			require.NoError(t, ctx.Err())
			w.redis.fails(refused)
			time.Sleep(3 * lease)
			require.NoError(t, ctx.Err())
			return w.apply(ctx, c)
		})
		require.NoError(t, err)
		require.Equal(t, 1, w.effects("A"))
		require.Zero(t, w.hooks.losses())
	})
}

// In Logged a claim lost in Redis alone cancels nothing: the log's only does.
func TestLease_LostInRedisOfLogged_CancelsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		_, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
			w.mem.Flush()
			time.Sleep(3 * lease)
			require.NoError(t, ctx.Err())
			return w.apply(ctx, c)
		})
		require.NoError(t, err)
		require.Zero(t, w.hooks.losses())
	})
}

// A renewal that was on its way while the claim was completed finds it done. Nothing was lost: the handler had returned.
func TestLease_RenewalThatMeetsTheOwnDone_IsNoLoss(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			c := w.claim(w.Guard, delivery("A"))
			_, stop := w.Hold(context.Background(), c)
			sending, completed := make(chan struct{}), make(chan struct{})
			w.authorityWire().pauses(func(op string) {
				if op == "renew" {
					close(sending)
					<-completed
				}
			})
			<-sending
			_, errs := w.Complete(context.Background(), c)
			require.NoError(t, errs[0])
			close(completed)
			synctest.Wait()
			require.NoError(t, stop())
			require.Zero(t, w.hooks.losses())
		})
	})
}

// Completing takes longer than a lease: nothing was lost while the handler ran.
func TestLease_ThatEndsWhileSettling_IsNoLossOfTheHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		start := time.Now()
		w.log.plans(func(op string) fault {
			if time.Since(start) < 2*lease && (op == "complete" || op == "renew") {
				return refused
			}
			return fine
		})
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Zero(t, w.hooks.losses())
	})
}

// A handler that goes on after its context ended is named, and no longer kept alive.
func TestLease_OfAHandlerThatOverruns_IsNamedAndRenewedNoMore(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := w.Do(ctx, delivery("A"), func(context.Context, *dedupe.Claim) error {
				time.Sleep(time.Second + w.StopGrace() - time.Millisecond)
				synctest.Wait()
				require.Empty(t, w.hooks.codes())
				time.Sleep(time.Millisecond)
				synctest.Wait()
				require.Equal(t, []string{"handler-overrun"}, w.hooks.codes())
				renewed := w.redis.calls("renew")
				time.Sleep(3 * lease)
				require.Equal(t, renewed, w.redis.calls("renew"))
				return errHandler
			})
			require.ErrorIs(t, err, map[bool]error{true: errHandler, false: dedupe.ErrLeaseLost}[mode == dedupe.Transactional])
		})
	})
}

func TestHold_OfABatch_LosesAllWithOne(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			a, b := w.claim(w.Guard, delivery("A")), w.claim(w.Guard, delivery("B"))
			ctx, stop := w.Hold(context.Background(), a, b)
			_, ok := dedupe.ClaimFrom(ctx)
			require.False(t, ok, "ambiguous")
			_, err := w.Claim(ctx, delivery("B"))
			require.ErrorIs(t, err, dedupe.ErrNested)

			store := dedupe.Store(w.db)
			if mode == dedupe.RedisOnly {
				store = w.mem
			}
			grip := dedupe.Grip{Key: b.Key(), Owner: b.Owner(), Incarnation: w.authority("B").Incarnation}
			require.NoError(t, store.Release(context.Background(), []dedupe.ReleaseRequest{{Grip: grip}})[0].Err)
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), dedupe.ErrLeaseLost)
			require.ErrorIs(t, stop(), dedupe.ErrLeaseLost)
			_, errs := w.Complete(context.Background(), a, b)
			require.NoError(t, errs[0])
			require.ErrorIs(t, errs[1], dedupe.ErrStale)
		})
	})
}

func TestHold_OfNothing_IsAPlainContext(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	ctx, stop := w.Hold(context.Background())
	require.NoError(t, ctx.Err())
	require.NoError(t, stop())
	require.ErrorIs(t, ctx.Err(), context.Canceled)
}

func TestClose_WaitsForClaimsInFlight_AndGivesUpWithItsContext(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			c := w.claim(w.Guard, delivery("A"))
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			require.ErrorIs(t, w.Close(ctx), context.DeadlineExceeded)
			_, err := w.deliver("B")
			require.ErrorIs(t, err, dedupe.ErrClosed)

			closed := make(chan error)
			go func() { closed <- w.Close(context.Background()) }()
			synctest.Wait()
			_, errs := w.Release(context.Background(), dedupe.ReleaseReason{HandBack: true}, c)
			require.NoError(t, errs[0])
			require.NoError(t, <-closed)
		})
	})
}

// A panic, and Goexit, go on; the claim is released and the failure counted before.
func TestDo_PanicAndGoexit_ReleaseTheClaim(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		require.PanicsWithValue(t, "boom", func() {
			_, _ = w.Do(context.Background(), delivery("A"), func(context.Context, *dedupe.Claim) error { panic("boom") })
		})
		require.Equal(t, dedupe.StateFree, w.authority("A").State)
		require.Equal(t, 1, w.authority("A").Failures)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = w.Do(context.Background(), delivery("A"), func(context.Context, *dedupe.Claim) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-ended
		require.Equal(t, 2, w.authority("A").Failures)
		closes(t, w.Guard)
	})
}

// Completion is asked for until the answer is known, with the claim renewed meanwhile, also when the caller is cancelled: [M: okrelease].
func TestProtocol2_SuccessIsCompletedThoughCancelled(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			ctx, cancel := context.WithCancel(context.Background())
			start := time.Now()
			w.authorityWire().plans(func(op string) fault {
				if op == "complete" && time.Since(start) < w.StopGrace()-time.Second {
					return []fault{refused, lostRequest, lostReply}[time.Since(start).Milliseconds()%3]
				}
				return fine
			})
			out, err := w.Do(ctx, delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
				err := w.apply(ctx, c)
				cancel()
				return err
			})
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			require.Equal(t, dedupe.StateDone, w.authority("A").State)
			require.Zero(t, w.authorityWire().calls("release"))
		})
	})
}
