package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// The four cases: one delivery = one write; three = one write and two hits.
func TestProcess_OneDeliveryIsOneWrite_ThreeAreOneWriteAndTwoHits(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(fine)
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Claimed, d.Verdict)
		require.Equal(t, 1, w.applied("a"))
		for range 2 {
			d = w.pipeline(fine).Process(t.Context(), order("a"), &w.letters)
			require.Equal(t, consumer.Ack, d.Action)
			require.Equal(t, dedupe.Done, d.Verdict)
		}
		require.Equal(t, 1, w.applied("a"))
		require.Empty(t, w.letters.reasons())
	})
}

// The four cases: Redis down, ten deliveries = one write.
func TestProcess_RedisDown_TenDeliveriesAreOneWrite(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional, dedupe.Logged}, func(t *testing.T, w *world) {
		w.redisIs.down(dedupe.ErrUnavailable)
		for range 10 {
			require.Equal(t, consumer.Ack, w.pipeline(fine).Process(t.Context(), order("a"), &w.letters).Action)
		}
		require.Equal(t, 1, w.applied("a"))
	})
}

// The four cases: hostile keys.
func TestProcess_HostileIDs_AreAppliedOnceEachAndNeverMeet(t *testing.T) {
	long := strings.Repeat("x", 1025)
	ids := []string{long, long + "y", "sha256:" + strings.Repeat("0", 64), " ", "a ", "A", "a", "á", "a\x00", "\xff", "{inventory:1}", "'; DROP TABLE--", "a:b", "%41"}
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(fine)
		for range 2 {
			for _, id := range ids {
				require.Equal(t, consumer.Ack, p.Process(t.Context(), order(id), &w.letters).Action)
			}
		}
		for _, id := range ids {
			require.Equal(t, 1, w.applied(id), "%q", id)
		}
		d := p.Process(t.Context(), order(""), &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "the empty id")
		require.True(t, d.Letter)
		require.Equal(t, []string{consumer.ReasonMissingID}, w.letters.reasons())
	})
}

// PROTOCOL 7: the namespace defaults to the origin topic; sharing is an explicit choice.
func TestProcess_SameIDOnAnotherTopic_IsAnotherMessageUnlessShared(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint(shared), func(t *testing.T) {
			w := newWorld(t, dedupe.Logged)
			p := w.pipeline(fine, func(c *consumer.Config) { c.SharedIDs = shared })
			m := order("a")
			other := order("a")
			other.Topic = "returns"
			p.Process(t.Context(), m, &w.letters)
			p.Process(t.Context(), other, &w.letters)
			require.Equal(t, map[bool]int{false: 2, true: 1}[shared], w.applied("a"))
		})
	}
}

// PROTOCOL 4: only the handler's own failures count, over restarts and moves to other consumers.
func TestProcess_FailuresAreCountedOverRestarts_ThenBuried(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		var attempts []int
		work := func(_ context.Context, m *consumer.Message) error {
			attempts = append(attempts, m.Claim().Attempt())
			return errNoStock
		}
		policy := func(c *consumer.Config) {
			c.Policy = consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Attempts: 5, InPlace: 2, Tiers: []time.Duration{5 * time.Second, time.Minute}}}
		}
		start := time.Now()
		d := w.pipeline(work, policy).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Disposition{Action: consumer.Again, Why: consumer.Failed, After: 5 * time.Second, Failures: 2, Tier: 0, Verdict: dedupe.Claimed, Err: d.Err}, d)
		require.ErrorIs(t, d.Err, errNoStock)
		require.GreaterOrEqual(t, time.Since(start), 160*time.Millisecond, "it waited in place")
		for range 2 {
			d = w.pipeline(work, policy).Process(t.Context(), order("a"), &w.letters)
			require.Equal(t, 1, d.Tier)
			require.Equal(t, time.Minute, d.After)
		}
		require.Equal(t, 4, d.Failures)
		d = w.pipeline(work, policy).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.True(t, d.Letter)
		require.Equal(t, dedupe.Dead, d.Verdict)
		require.Equal(t, 5, d.Failures)
		require.Equal(t, []string{consumer.ReasonExhausted}, w.letters.reasons())
		l := w.letters.got[0]
		require.Equal(t, "a", l.ID)
		require.Equal(t, "inventory", l.Scope)
		require.Equal(t, "orders", l.Namespace)
		require.Equal(t, 5, l.Attempts)
		require.Contains(t, l.Error, "no stock")
		require.Equal(t, dedupe.StateDead, w.state("a").State)

		d = w.pipeline(fine, policy).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "a copy that is not marked is acknowledged unseen")
		require.Equal(t, dedupe.Dead, d.Verdict)
		require.False(t, d.Letter)
		require.Zero(t, w.applied("a"))
		if w.mode == dedupe.Transactional {
			require.Len(t, attempts, 5)
			return
		}
		require.Equal(t, []int{1, 2, 3, 4, 5}, attempts)
	})
}

func TestProcess_FailsOnceThenSucceeds_IsAppliedInPlace(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		n := 0
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			if n++; n == 1 {
				return consumer.RetryAfter(time.Minute, errNoStock)
			}
			return nil
		})
		start := time.Now()
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.GreaterOrEqual(t, time.Since(start), time.Minute, "RetryAfter is honoured")
		require.Equal(t, 1, w.applied("a"))
	})
}

func TestProcess_HandlerEnds_TableOfOutcomes(t *testing.T) {
	errCustom := errors.New("sku is unknown")
	for _, c := range []struct {
		name   string
		work   consumer.Handler
		reason string // of the letter
		counts bool
	}{
		{"permanent", func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }, consumer.ReasonPermanent, true},
		{"permanent by name", func(context.Context, *consumer.Message) error { return fmt.Errorf("decrement: %w", errCustom) }, consumer.ReasonPermanent, true},
		{"undecodable", consumer.JSON(func(context.Context, consumer.Decoded[[]int]) error { return nil }), consumer.ReasonUndecodable, true},
		{"no handler for the topic", consumer.ByTopic(nil), consumer.ReasonPermanent, true},
		{"fails", fails, consumer.ReasonExhausted, true},
		{"panics", func(context.Context, *consumer.Message) error { panic(errNoStock) }, consumer.ReasonExhausted, true},
		{"panics with nil", func(context.Context, *consumer.Message) error { panic(nil) }, consumer.ReasonExhausted, true},
		{"Goexit", func(context.Context, *consumer.Message) error { runtime.Goexit(); return nil }, consumer.ReasonExhausted, true},
		{"times out", func(ctx context.Context, _ *consumer.Message) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), consumer.ErrHandlerTimeout) {
				return nil
			}
			return ctx.Err()
		}, consumer.ReasonExhausted, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inModes(t, modes, func(t *testing.T, w *world) {
				p := w.pipeline(c.work, func(cfg *consumer.Config) {
					cfg.Policy.Retry = consumer.Retry{Attempts: 2, Permanent: []string{"unknown_sku"}}
					cfg.Errors = map[string]func(error) bool{"unknown_sku": func(err error) bool { return errors.Is(err, errCustom) }}
				})
				d := p.Process(t.Context(), order("a"), &w.letters)
				require.Equal(t, consumer.Ack, d.Action, "%v", d.Err)
				require.Equal(t, dedupe.Dead, d.Verdict)
				require.True(t, d.Letter)
				require.Equal(t, []string{c.reason}, w.letters.reasons())
				require.Zero(t, w.applied("a"))
				require.NotContains(t, w.letters.got[0].Error, `"order":`, "no payload in the error")
			})
		})
	}
}

// PROTOCOL 4: cancellation by drain, revoke or lost lease never counts and never leads to a dead letter.
func TestProcess_CancelledHandler_CountsNothing(t *testing.T) {
	for _, cause := range []error{consumer.ErrDraining, consumer.ErrRevoked, context.Canceled} {
		inModes(t, modes, func(t *testing.T, w *world) {
			p := w.pipeline(func(ctx context.Context, _ *consumer.Message) error {
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), cause)
				return consumer.Permanent(errors.New("driver: operation was cancelled"))
			}, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
			for range 3 {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				d := p.Process(ctx, order("a"), &w.letters)
				require.Equal(t, consumer.Again, d.Action)
				require.Equal(t, consumer.Draining, d.Why)
				require.ErrorIs(t, d.Err, cause)
			}
			require.Empty(t, w.letters.reasons())
			require.Zero(t, w.state("a").Failures)
			d := w.pipeline(fine).Process(t.Context(), order("a"), &w.letters)
			require.Equal(t, consumer.Ack, d.Action, "the claim was handed back, not left to its lease")
			require.Equal(t, 1, w.applied("a"))
		})
	}
}

// PROTOCOL 2: a handler that returned success is completed, also when cancelled or revoked, and never released [M: okrelease].
func TestProcess_SuccessOfACancelledHandler_IsCompleted(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancelCause(t.Context())
		p := w.pipeline(func(context.Context, *consumer.Message) error { cancel(consumer.ErrRevoked); return nil })
		d := p.Process(ctx, order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Claimed, d.Verdict)
		require.Equal(t, dedupe.StateDone, w.state("a").State)
	})
}

func TestProcess_LostLease_CancelsTheHandlerAndCountsNothing(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, w *world) {
		p := w.pipeline(func(ctx context.Context, _ *consumer.Message) error {
			w.dbIs.down(dedupe.ErrUnavailable, "renew")
			w.redisIs.down(dedupe.ErrUnavailable, "renew")
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), dedupe.ErrLeaseLost)
			w.dbIs.up()
			w.redisIs.up()
			return ctx.Err()
		}, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Again, d.Action)
		require.Equal(t, consumer.WhyBusy, d.Why, "%v", d.Err)
		require.Zero(t, w.state("a").Failures)
		require.Empty(t, w.letters.reasons())
	})
}

// PROTOCOL 6: work that was not started is not claimed.
func TestProcess_DrainHasBegun_NothingIsClaimed(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		begun := make(chan struct{})
		close(begun)
		d := w.pipeline(fine).Process(consumer.WithDrain(t.Context(), begun), order("a"), &w.letters)
		require.Equal(t, consumer.Draining, d.Why)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d = w.pipeline(fine).Process(ctx, order("a"), &w.letters)
		require.Equal(t, consumer.Draining, d.Why)
		require.Equal(t, dedupe.StateAbsent, w.state("a").State)
		require.Zero(t, w.applied("a"))
	})
}

// PROTOCOL 6: waits end at once when the drain begins; a running handler goes on.
func TestProcess_DrainBegins_EndsWaitsAndLetsTheHandlerFinish(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		draining := func() context.Context {
			begun := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(begun) })
			return consumer.WithDrain(t.Context(), begun)
		}
		start := time.Now()
		d := w.pipeline(func(context.Context, *consumer.Message) error { time.Sleep(10 * time.Second); return nil }).Process(draining(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "%v", d.Err)
		require.Equal(t, 10*time.Second, time.Since(start))

		start = time.Now()
		d = w.pipeline(func(context.Context, *consumer.Message) error { return consumer.RetryAfter(time.Hour, errNoStock) }).Process(draining(), order("b"), &w.letters)
		require.Equal(t, consumer.Draining, d.Why)
		require.Equal(t, 1, d.Failures)
		require.Equal(t, time.Second, time.Since(start), "the wait for a retry ended at once")
	})
}

// PROTOCOL 6: Busy waits in place, ends at once on revoke, and is never acknowledged.
func TestProcess_Busy_WaitsInPlaceThenGoesBackUncounted(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, w *world) {
		other := w.guard()
		m := order("a")
		out, err := other.Claim(t.Context(), dedupe.Delivery{ID: "a", Namespace: "orders", Fingerprint: dedupe.FingerprintOf(m.Value)})
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)

		p := w.pipeline(fine, func(c *consumer.Config) { c.Policy.Busy.Wait = 3 * time.Second })
		start := time.Now()
		d := p.Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Again, d.Action)
		require.Equal(t, consumer.WhyBusy, d.Why)
		require.Equal(t, dedupe.Busy, d.Verdict)
		require.Positive(t, d.After)
		require.Equal(t, 3*time.Second, time.Since(start))

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(consumer.ErrRevoked) })
		start = time.Now()
		require.Equal(t, consumer.Draining, p.Process(ctx, m, &w.letters).Why)
		require.Equal(t, time.Second, time.Since(start))

		_, errs := other.Complete(t.Context(), out.Claim)
		require.NoError(t, errs[0])
		require.Equal(t, dedupe.Done, p.Process(t.Context(), m, &w.letters).Verdict)
	})
}

// DECISIONS 7: same id, other payload.
func TestProcess_Conflict_BecomesALetterAndNeverTouchesTheKey(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(fine)
		p.Process(t.Context(), order("a"), &w.letters)
		before := w.state("a")
		other := order("a")
		other.Value = []byte("other")
		d := p.Process(t.Context(), other, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Conflict, d.Verdict)
		require.True(t, d.Letter)
		require.Equal(t, []string{consumer.ReasonConflict}, w.letters.reasons())
		require.Equal(t, before, w.state("a"))
		require.Equal(t, 1, w.applied("a"))

		d = w.pipeline(fine, func(c *consumer.Config) { c.Policy.Conflict = consumer.HaltOnIt }).Process(t.Context(), other, &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, dedupe.ErrConflict)
		d = w.pipeline(fine, func(c *consumer.Config) { c.Fingerprint = consumer.NoFingerprint() }).Process(t.Context(), other, &w.letters)
		require.Equal(t, dedupe.Done, d.Verdict, "trusted blindly")
	})
}

// DECISIONS 7: an unmarked copy that meets Dead with another fingerprint gets a conflict letter, then ack.
func TestProcess_DeadWithAnotherPayload_GetsALetterOfItsOwn(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) })
		p.Process(t.Context(), order("a"), &w.letters)
		other := order("a")
		other.Value = []byte("other")
		d := p.Process(t.Context(), other, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonPermanent, consumer.ReasonConflict}, w.letters.reasons())
		require.Equal(t, consumer.ReasonPermanent, w.state("a").Reason)
	})
}

func TestProcess_MissingID_GoesByPolicy(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		m := order("a")
		m.Headers = nil
		d := w.pipeline(fine).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonMissingID}, w.letters.reasons())
		require.Empty(t, w.letters.got[0].ID)

		d = w.pipeline(fine, func(c *consumer.Config) { c.Policy.MissingID = consumer.MissingIDHalt }).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, consumer.ErrMissingID)

		p := w.pipeline(fine, func(c *consumer.Config) { c.Policy.MissingID = consumer.MissingIDUsePosition })
		p.Process(t.Context(), m, &w.letters)
		p.Process(t.Context(), m, &w.letters)
		require.Equal(t, 1, w.applied(m.Position.String()))

		d = w.pipeline(fine, func(c *consumer.Config) {
			c.ID = func(*consumer.Message) (string, error) { panic("no such field") }
		}).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "a panic of the id function is a missing id")
		require.Len(t, w.letters.got, 2)
	})
}

func TestProcess_FingerprintFails_IsUndecodable(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		m := order("a")
		m.Value = []byte("{")
		d := w.pipeline(fine, func(c *consumer.Config) { c.Fingerprint = consumer.FingerprintJSON("order") }).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonUndecodable}, w.letters.reasons())
		require.Equal(t, dedupe.StateAbsent, w.state("a").State)
		d = w.pipeline(fine, func(c *consumer.Config) {
			c.Fingerprint = func(*consumer.Message) (dedupe.Fingerprint, error) { return dedupe.Fingerprint{}, nil }
		}).Process(t.Context(), m, &w.letters)
		require.True(t, d.Letter, "a forgotten fingerprint is never NoFingerprint")
		require.Zero(t, w.applied("a"))
	})
}

func TestProcess_DeadLettersOff_Halts(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(fails, func(c *consumer.Config) {
			c.Policy.Retry.Attempts = 1
			c.Policy.DeadLetter.Off = true
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, consumer.ErrNoDeadLetters)
		require.ErrorIs(t, d.Err, errNoStock)
		m := order("b")
		m.Headers = nil
		require.Equal(t, consumer.Halt, p.Process(t.Context(), m, &w.letters).Action)
		require.Equal(t, consumer.Halt, w.pipeline(fails, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 }).Process(t.Context(), order("c"), nil).Action)
		require.Empty(t, w.letters.reasons())
		require.Equal(t, consumer.Ack, w.pipeline(fine).Process(t.Context(), order("a"), &w.letters).Action, "after the restart it runs")
	})
}

// PROTOCOL 5: the letter, then Dead, then the ack [M: deadfirst].
func TestProcess_LetterNotStored_NothingIsBuriedAndNothingAcknowledged(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		w.letters.fail = errors.New("broker is away")
		p := w.pipeline(fails, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		for range 3 {
			d := p.Process(t.Context(), order("a"), &w.letters)
			require.Equal(t, consumer.Again, d.Action)
			require.Equal(t, consumer.Outage, d.Why)
			require.ErrorIs(t, d.Err, w.letters.fail)
		}
		require.NotEqual(t, dedupe.StateDead, w.state("a").State)
		w.letters.fail = fmt.Errorf("too large: %w", consumer.ErrLetterRefused)
		require.Equal(t, consumer.Halt, p.Process(t.Context(), order("a"), &w.letters).Action, "trying again cannot help")
		w.letters.fail = nil
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("a"), &w.letters).Action)
		require.Equal(t, dedupe.StateDead, w.state("a").State)
	})
}

// PROTOCOL 4: an hour's outage buries nothing.
func TestProcess_StoreOutage_NeverCountsAndNeverBuries(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, w *world) {
		p := w.pipeline(fails, func(c *consumer.Config) { c.Policy.Retry.Attempts = 2 })
		down := &w.dbIs
		if w.mode == dedupe.RedisOnly {
			down = &w.redisIs
		}
		require.Equal(t, consumer.Ack, w.pipeline(fine).Process(t.Context(), order("warm"), &w.letters).Action)
		for _, err := range []error{dedupe.ErrUnavailable, dedupe.ErrOutcomeUnknown} {
			down.down(err)
			for range 20 {
				d := p.Process(t.Context(), order("a"), &w.letters)
				require.Equal(t, consumer.Again, d.Action)
				require.Equal(t, consumer.Outage, d.Why)
				require.Positive(t, d.After)
				require.Error(t, p.Ready(t.Context()))
			}
		}
		down.up()
		require.NoError(t, p.Ready(t.Context()))
		require.Zero(t, w.state("a").Failures)
		require.Empty(t, w.letters.reasons())
		require.Zero(t, w.applied("a"))
	})
}

func TestProcess_DatabaseDownInTheHandler_IsAnOutageAndNotAFailure(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			return fmt.Errorf("begin: %w", dedupe.ErrUnavailable)
		}, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		for range 5 {
			d := p.Process(t.Context(), order("a"), &w.letters)
			require.Equal(t, consumer.Outage, d.Why)
		}
		require.Empty(t, w.letters.reasons())
	})
}

// PROTOCOL 1: completion goes to the log before the ack, however long the log is away.
func TestProcess_LogAwayAtCompletion_WaitsAndDoesNotRunAgain(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged}, func(t *testing.T, w *world) {
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			w.dbIs.down(dedupe.ErrUnavailable)
			return nil
		})
		time.AfterFunc(time.Hour, w.dbIs.up)
		start := time.Now()
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.GreaterOrEqual(t, time.Since(start), time.Hour)

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, consumer.ErrRevoked)
		defer cancel()
		d = p.Process(ctx, order("b"), &w.letters)
		require.Equal(t, consumer.Again, d.Action, "the partition is lost meanwhile: not acknowledged")
		w.dbIs.up()
		d = p.Process(t.Context(), order("b"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, 1, w.applied("b"), "the handler did not run again")
	})
}

// DECISIONS 19: in RedisOnly, and only there, an outage may be processed unprotected.
func TestProcess_Unprotected_RunsWithoutAClaimWhileRedisIsAway(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.RedisOnly}, func(t *testing.T, w *world) {
		policy := func(c *consumer.Config) { c.Policy.StoreOutage = consumer.OutageProcessUnprotected }
		p := w.pipeline(fine, policy)
		w.redisIs.down(dedupe.ErrUnavailable)
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("a"), &w.letters).Action)
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("a"), &w.letters).Action)
		require.Equal(t, 2, w.applied("a"), "duplicates apply")
		d := w.pipeline(fails, policy).Process(t.Context(), order("b"), &w.letters)
		require.Equal(t, consumer.Failed, d.Why, "goes back after its attempts in place")
		d = w.pipeline(func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }, policy).Process(t.Context(), order("b"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonPermanent}, w.letters.reasons())
	})
}

// PROTOCOL 8: memory loss halts by default.
func TestProcess_RedisLostItsMemory_Halts(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.RedisOnly}, func(t *testing.T, w *world) {
		p := w.pipeline(fine)
		p.Process(t.Context(), order("a"), &w.letters)
		w.redis.Flush()
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, dedupe.ErrMemoryLost)
		require.Equal(t, 1, w.applied("a"))
	})
}

// DECISIONS 11: not recorded is buried (letter, Dead), then Halt, so that a restart does not run it again.
func TestProcess_NotRecorded_IsBuriedThenHalts(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		runs := 0
		forgets := func(c *consumer.Config) {
			c.Handler = func(context.Context, *consumer.Message) error { runs++; return nil }
		}
		d := w.pipeline(nil, forgets).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, dedupe.ErrNotRecorded)
		require.Equal(t, []string{consumer.ReasonNotRecorded}, w.letters.reasons())
		d = w.pipeline(nil, forgets).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, 1, runs)

		w.letters.fail = errors.New("broker is away")
		d = w.pipeline(nil, forgets).Process(t.Context(), order("b"), &w.letters)
		require.Equal(t, consumer.Halt, d.Action, "halts even if it cannot be parked")
		require.ErrorIs(t, d.Err, w.letters.fail)
	})
}

func TestProcess_NoEffect_NeedsNoRow(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		p := w.pipeline(nil, func(c *consumer.Config) {
			c.Handler = func(_ context.Context, m *consumer.Message) error { m.Claim().NoEffect(); return nil }
		})
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), order("a"), &w.letters).Verdict)
		require.Equal(t, dedupe.Done, p.Process(t.Context(), order("a"), &w.letters).Verdict)
	})
}

// PROTOCOL 3: a second InTx on a claim whose commit is known: Halt, neither retried nor done.
func TestProcess_RecordedTwice_Halts(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		p := w.pipeline(nil, func(c *consumer.Config) {
			c.Handler = func(ctx context.Context, _ *consumer.Message) error {
				if err := w.db.InTx(ctx, func(*memstore.Tx) error { return nil }); err != nil {
					return err
				}
				return w.db.InTx(ctx, func(*memstore.Tx) error { return nil })
			}
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, dedupe.ErrRecorded)
	})
}

// DECISIONS 10: Record or InTx in another mode: ErrWrongMode, Halt.
func TestProcess_RecordInAnotherMode_Halts(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged}, func(t *testing.T, w *world) {
		p := w.pipeline(nil, func(c *consumer.Config) {
			c.Handler = memstore.Transactional(w.db, func(context.Context, *memstore.Tx, *consumer.Message) error { return nil })
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, dedupe.ErrWrongMode)
		require.Equal(t, dedupe.StateFree, w.state("a").State, "the claim does not wait for its lease")
	})
}

// STORES, "not applied": the handler swallowed the failure of its commit.
func TestProcess_CommitFailedAndSwallowed_RunsAgain(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		runs := 0
		p := w.pipeline(nil, func(c *consumer.Config) {
			c.Handler = func(_ context.Context, m *consumer.Message) error {
				tx := w.db.Begin()
				if err := w.db.Record(tx, m.Claim()); err != nil {
					return err
				}
				if runs++; runs == 1 {
					return nil // forgets to commit
				}
				return tx.Commit()
			}
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "%v", d.Err)
		require.Equal(t, 2, runs)
		require.Equal(t, dedupe.StateDone, w.state("a").State)
	})
}

func TestProcess_OnDuplicate_GetsTheResultAndItsErrorIsNotAcknowledged(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		var got []string
		fail := true
		p := w.pipeline(func(_ context.Context, m *consumer.Message) error { return m.Claim().SetResult([]byte("reply")) }, func(c *consumer.Config) {
			c.OnDuplicate = func(_ context.Context, m *consumer.Message, r dedupe.Record) error {
				got = append(got, m.ID()+"="+string(r.Result))
				if fail {
					panic("reply topic is away")
				}
				return nil
			}
		})
		p.Process(t.Context(), order("a"), &w.letters)
		require.Empty(t, got)
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Again, d.Action)
		require.Equal(t, consumer.Failed, d.Why)
		require.Equal(t, -1, d.Tier)
		require.Equal(t, []string{"a=reply", "a=reply", "a=reply"}, got, "tried in place")
		fail = false
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("a"), &w.letters).Action)
		require.Equal(t, 1, w.applied("a"))
	})
}

func TestProcess_Middleware_RunsInsideTheClaimOutermostFirst(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	var ran []string
	named := func(name string) consumer.Middleware {
		return func(next consumer.Handler) consumer.Handler {
			return func(ctx context.Context, m *consumer.Message) error {
				require.NotNil(t, m.Claim())
				_, ok := dedupe.ClaimFrom(ctx)
				require.True(t, ok)
				ran = append(ran, name)
				return next(ctx, m)
			}
		}
	}
	p := w.pipeline(fine, func(c *consumer.Config) { c.Middleware = []consumer.Middleware{named("outer"), named("inner")} })
	m := order("a")
	p.Process(t.Context(), m, &w.letters)
	p.Process(t.Context(), order("a"), &w.letters)
	require.Equal(t, []string{"outer", "inner"}, ran, "not for a duplicate")
	require.Nil(t, m.Claim())
	require.Equal(t, "a", m.ID())
}

// PROTOCOL 4: a message with two deaths runs alone in its process, and only a death alone leads to burying.
func TestProcess_MessageThatKillsItsProcess_RunsAloneThenIsBuried(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		delivery := dedupe.Delivery{ID: "killer", Namespace: "orders", Fingerprint: dedupe.FingerprintOf(order("killer").Value)}
		die := func(alone bool) {
			d := delivery
			d.Alone = alone
			out, err := w.guard().Claim(t.Context(), d)
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			time.Sleep(lease + time.Second)
		}
		die(false)
		die(false)
		running, most, alone := 0, 0, false
		p := w.pipeline(func(_ context.Context, m *consumer.Message) error {
			running++
			most = max(most, running)
			if m.ID() == "killer" {
				alone = running == 1
			}
			time.Sleep(time.Second)
			running--
			if m.ID() == "killer" {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) { c.Policy.Retry.InPlace = 1 })
		ended := make(chan consumer.Disposition, 3)
		for _, id := range []string{"b", "killer", "c"} {
			m := order(id)
			go func() { ended <- p.Process(t.Context(), m, &w.letters) }()
			synctest.Wait()
		}
		for range 3 {
			<-ended
		}
		require.True(t, alone, "nothing ran beside it")
		require.Equal(t, 1, w.applied("b"))
		require.Equal(t, 1, w.applied("c"))
		require.Empty(t, w.letters.reasons(), "two deaths bury nothing")

		for range 4 {
			die(true)
		}
		d := p.Process(t.Context(), order("killer"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonKills}, w.letters.reasons())
		require.Equal(t, dedupe.StateDead, w.state("killer").State)
	})
}

// DECISIONS 6: idemq-* headers are honoured on our own retry topics and on copies marked for our scope, ignored elsewhere.
func TestProcess_IdentityHeaders_AreBelievedOnOwnCopiesOnly(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		fail := true
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			if fail {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) {
			c.Policy = consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{InPlace: 1, Tiers: []time.Duration{time.Second}}}
		})
		m := order("a")
		d := p.Process(t.Context(), m, &w.letters)
		require.Equal(t, 0, d.Tier)
		retry := &consumer.Message{
			Position: consumer.Position{Topic: "inventory.retry.1s", Offset: 1}, Value: m.Value,
			Headers: consumer.RetryHeaders(m, d), OwnRetry: true,
		}
		fail = false
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), retry, &w.letters).Verdict)
		require.Equal(t, m.Position, retry.Origin)
		require.Equal(t, "orders", retry.Namespace())
		require.Equal(t, 1, w.applied("a"))
		require.Equal(t, dedupe.Done, p.Process(t.Context(), m, &w.letters).Verdict, "the copy and its source are one message")

		forwarded := order("b")
		forwarded.Headers = append(append(append(consumer.Headers{}, retry.Headers...), consumer.Header{Name: "msg_id", Value: []byte("b")}), consumer.Header{Name: consumer.HeaderRedrive, Value: []byte("another-scope")})
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), forwarded, &w.letters).Verdict)
		require.Equal(t, "b", forwarded.ID(), "a service that forwards all headers does not change identity")
		require.Equal(t, "orders", forwarded.Origin.Topic)
	})
}
