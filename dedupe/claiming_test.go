package dedupe_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// The reply to a claim was lost and given up; then two deliveries of the message are in one process at once. Only one may ask with the
// old owner: to a store, whoever asks with it holds the claim [M: oldrunning].
func TestProtocol2_OldOwner_IsTakenUpByOneDeliveryOnly(t *testing.T) {
	inEachMode(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			if mode == dedupe.Logged {
				w.Guard = w.process(withoutRedis)
			}
			authority := w.authorityWire()
			authority.fails(lostReply, "claim")
			_, err := w.deliver("A")
			require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)

			authority.fails(fine)
			gate := make(chan struct{}) // both have chosen their owner before the first is answered
			authority.pauses(func(string) { <-gate })
			verdicts := make(chan dedupe.Verdict, 2)
			for range 2 {
				go func() {
					out, err := w.Claim(context.Background(), delivery("A"))
					assert.NoError(t, err)
					verdicts <- out.Verdict
				}()
			}
			synctest.Wait()
			close(gate)
			require.ElementsMatch(t, []dedupe.Verdict{dedupe.Claimed, dedupe.Busy}, []dedupe.Verdict{<-verdicts, <-verdicts})
		})
	})
}

// [M: noroute]: an unmarked and a marked copy of a dead letter in one call. The first is Dead and acknowledged; the second must not be, for
// it is the redrive: acknowledged unseen, the message is lost.
func TestProtocol5_MarkedCopyBesideAnUnmarkedOne_IsNotAnsweredDead(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		w.bury(w.Guard, delivery("A"))
		outs, errs := w.ClaimBatch(context.Background(), []dedupe.Delivery{delivery("A"), redriven("A")})
		require.Equal(t, []error{nil, nil}, errs)
		require.Equal(t, dedupe.Dead, outs[0].Verdict)
		require.Equal(t, dedupe.Busy, outs[1].Verdict, "asked again when the first has ended")

		out, err := w.Do(context.Background(), redriven("A"), w.apply)
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}

// The guard is closed while the store answers a claim: Close waits for it, and nothing stays claimed.
func TestClose_DuringAClaim_LeavesNoClaimBehind(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			asked, answer := make(chan struct{}), make(chan struct{})
			w.redis.pauses(func(op string) {
				if op == "claim" {
					close(asked)
					<-answer
				}
			})
			ended := make(chan error)
			go func() {
				_, err := w.deliver("A")
				ended <- err
			}()
			<-asked
			closed := make(chan error)
			go func() { closed <- w.Close(context.Background()) }()
			synctest.Wait()
			close(answer)
			require.NoError(t, <-ended)
			require.NoError(t, <-closed)
			require.NotEqual(t, dedupe.StateClaimed, w.inRedis("A").State)
			require.Equal(t, dedupe.StateDone, w.authority("A").State)

			_, err := w.deliver("B")
			require.ErrorIs(t, err, dedupe.ErrClosed)
		})
	})
}

// A handler may work on another message inside, but not come back to its own key, however deep: it would wait for itself.
func TestDo_NestedWithTheSameKey_IsRefusedAtAnyDepth(t *testing.T) {
	inEachMode(t, allModes, func(t *testing.T, mode dedupe.Mode) {
		w := newWorld(t, mode)
		_, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, _ *dedupe.Claim) error {
			_, err := w.Do(ctx, delivery("A"), w.apply)
			require.ErrorIs(t, err, dedupe.ErrNested)
			_, err = w.Do(ctx, delivery("B"), func(ctx context.Context, _ *dedupe.Claim) error {
				_, err := w.Do(ctx, delivery("A"), w.apply)
				return err
			})
			require.ErrorIs(t, err, dedupe.ErrNested)
			return err
		})
		require.ErrorIs(t, err, dedupe.ErrNested)
		require.Zero(t, w.effects("A"))
	})
}

// brokenStore answers what no store may.
type brokenStore struct {
	wiredStore
	answer func(n int) []dedupe.Reply
}

func (s brokenStore) Claim(_ context.Context, r []dedupe.ClaimRequest) []dedupe.Reply {
	return s.answer(len(r))
}

// brokenCompleter does so to Complete only.
type brokenCompleter struct {
	wiredStore
	answer func(n int) []dedupe.Reply
}

func (s brokenCompleter) Complete(_ context.Context, r []dedupe.CompleteRequest) []dedupe.Reply {
	return s.answer(len(r))
}

func verdicts(v dedupe.Verdict) func(int) []dedupe.Reply {
	return func(n int) []dedupe.Reply {
		reps := make([]dedupe.Reply, n)
		for i := range reps {
			reps[i].Verdict = v
		}
		return reps
	}
}

// A store that answers too little, nothing, or what it may not say is not taken at its word.
func TestStore_BrokenAnswer_IsAnUnknownOutcome(t *testing.T) {
	for name, answer := range map[string]func(int) []dedupe.Reply{
		"no reply":       func(int) []dedupe.Reply { return nil },
		"too many":       func(n int) []dedupe.Reply { return verdicts(dedupe.Claimed)(n + 1) },
		"zero verdict":   verdicts(0),
		"conflict":       verdicts(dedupe.Conflict),
		"verdict from 9": verdicts(9),
	} {
		t.Run("claim/"+name, func(t *testing.T) {
			w := newWorld(t, dedupe.RedisOnly)
			g := w.process(func(c *dedupe.Config) { c.Store = brokenStore{w.redis, answer} })
			_, err := g.Do(context.Background(), delivery("A"), w.apply)
			require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)
			require.Zero(t, w.effects("A"))
		})
	}
	for name, answer := range map[string]func(int) []dedupe.Reply{
		"no reply": func(int) []dedupe.Reply { return nil }, "zero verdict": verdicts(0), "busy": verdicts(dedupe.Busy), "dead": verdicts(dedupe.Dead),
	} {
		t.Run("complete/"+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, dedupe.RedisOnly)
				g := w.process(func(c *dedupe.Config) { c.Store = brokenCompleter{w.redis, answer} })
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := g.Do(ctx, delivery("A"), w.apply)
				require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown, "not acknowledged")
			})
		})
	}
}

// A lease is counted from the sending of the statement that made it, not from the arrival of the delivery: a fast path that hangs
// for longer than a lease does not make a claim of the log look lost.
func TestProtocol2_LeaseIsCountedFromTheStatementThatMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		w.redis.fails(refused)
		w.redis.pauses(func(op string) {
			if op == "claim" {
				time.Sleep(2 * lease)
			}
		})
		out, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
			synctest.Wait()
			require.NoError(t, context.Cause(ctx))
			return w.apply(ctx, c)
		})
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Zero(t, w.hooks.losses())
	})
}

// [M: busyforever]: Redis says Busy for a claim that nobody has, with any lease. It is believed for one lease by our own clock, which the
// caller is told; then the log is asked.
func TestProtocol1_BusyFromRedis_IsBelievedForOneLeaseOnly(t *testing.T) {
	inEachMode(t, []dedupe.Mode{dedupe.Transactional, dedupe.Logged}, func(t *testing.T, mode dedupe.Mode) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mode)
			rec := dedupe.Record{Key: w.key("A"), State: dedupe.StateClaimed, Owner: "nobody", LeaseLeft: time.Hour}
			require.NoError(t, w.mem.Learn(context.Background(), []dedupe.Record{rec}, time.Hour)[0])

			start := time.Now()
			var busy *dedupe.BusyError
			for tries := 0; ; tries++ {
				_, err := w.deliver("A")
				if err == nil {
					break
				}
				require.ErrorAs(t, err, &busy)
				require.LessOrEqual(t, busy.RetryIn, lease-time.Since(start))
				require.Less(t, tries, 100)
				time.Sleep(max(busy.RetryIn, time.Millisecond))
			}
			require.Equal(t, lease, time.Since(start))
			require.Equal(t, 1, w.effects("A"))
		})
	})
}

// RedisOnly: a lost memory is named, and by policy halts or goes on.
func TestProtocol8_LostMemory_IsNamedAndHaltsOrGoesOn(t *testing.T) {
	t.Run("halt", func(t *testing.T) {
		w := newWorld(t, dedupe.RedisOnly)
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.mem.Flush()
		for range 2 {
			_, err = w.deliver("A")
			require.ErrorIs(t, err, dedupe.ErrMemoryLost)
			require.Equal(t, 1, w.effects("A"))
		}
		require.Contains(t, w.hooks.codes(), "memory-lost")
	})
	t.Run("continue", func(t *testing.T) {
		w := newWorld(t, dedupe.RedisOnly, func(c *dedupe.Config) { c.OnMemoryLoss = dedupe.ContinueOnMemoryLoss })
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.mem.Flush()
		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Equal(t, 2, w.effects("A"), "as far as Redis remembers")
		require.Equal(t, []string{"memory-lost"}, w.hooks.codes())
	})
	t.Run("a start accepts the loss by name", func(t *testing.T) {
		w := newWorld(t, dedupe.RedisOnly)
		_, err := w.deliver("A")
		require.NoError(t, err)
		w.mem.RestoreFrom(w.mem.Snapshot())
		_, err = w.deliver("B")
		require.ErrorIs(t, err, dedupe.ErrMemoryLost)
		w.Guard = w.process()
		out, err := w.deliver("B")
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.Contains(t, w.hooks.codes(), "memory-lost")
	})
}

// Entering the scope hangs: a delivery whose context ends does not wait for another's attempt.
func TestEnter_ThatHangs_HoldsNobodyBeyondItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		release := make(chan struct{})
		w.log.pauses(func(op string) {
			if op == "enter" {
				<-release
			}
		})
		ended := make(chan error)
		go func() {
			_, err := w.deliver("A")
			ended <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		go func() {
			_, err := w.Do(ctx, delivery("B"), w.apply)
			ended <- err
		}()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			require.ErrorIs(t, err, dedupe.ErrUnavailable)
		default:
			t.Error("B waits for A's attempt")
		}
		close(release)
		require.NoError(t, <-ended)
	})
}

// DECISIONS.md, 13: what a process remembers is bounded, and quickly kept so. Successes to be completed are not what is dropped.
func TestProtocol2_MemoryOfAProcess_IsBoundedAndKeepsSuccesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		lying := w.process(func(c *dedupe.Config) { c.Store = brokenStore{w.redis, verdicts(dedupe.Busy)} })
		w.log.fails(refused, "complete")
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(2*lease, cancel)
		_, err := lying.Do(context.Background(), delivery("A"), w.apply)
		require.ErrorIs(t, err, dedupe.ErrBusy)
		time.Sleep(lease)
		_, err = lying.Do(ctx, delivery("A"), w.apply)
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
		require.Equal(t, 1, w.effects("A"))

		flood := make([]dedupe.Delivery, 101_000)
		for i := range flood {
			flood[i] = dedupe.Delivery{ID: fmt.Sprint("flood-", i), Fingerprint: dedupe.NoFingerprint}
		}
		outs, _ := lying.ClaimBatch(context.Background(), flood)
		require.Equal(t, dedupe.Busy, outs[len(outs)-1].Verdict)

		w.log.fails(fine)
		out, err := lying.Do(context.Background(), delivery("A"), w.apply)
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}
