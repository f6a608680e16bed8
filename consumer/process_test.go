package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
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

func TestProcess_FailsOnceThenSucceeds_IsAppliedInPlace(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		var after []time.Duration
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			if len(after) == 0 {
				return nil
			}
			d := after[0]
			after = after[1:]
			return consumer.RetryAfter(d, errNoStock)
		})
		after = []time.Duration{time.Minute}
		start := time.Now()
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.GreaterOrEqual(t, time.Since(start), time.Minute, "RetryAfter is honoured")
		require.Equal(t, 1, w.applied("a"))

		after = []time.Duration{time.Hour}
		start = time.Now()
		d = p.Process(t.Context(), order("b"), &w.letters)
		require.Equal(t, consumer.Failed, d.Why)
		require.Equal(t, time.Hour, d.After)
		require.Equal(t, -1, d.Tier)
		require.Zero(t, time.Since(start), "so long a wait is the adapter's: it needs no slot for it")
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
		patient := func(c *consumer.Config) { c.Policy.Retry.Backoff = consumer.Backoff{Initial: time.Hour} }
		d = w.pipeline(fails, patient).Process(draining(), order("b"), &w.letters)
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
