package consumer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

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

// The process stands still between the claim and the handler: by then another may be at it.
func TestProcess_LeaseIsOverBeforeTheHandlerBegins_HandlerDoesNotRun(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, w *world) {
		runs := 0
		p := w.pipeline(func(context.Context, *consumer.Message) error { runs++; return nil }, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		is := &w.dbIs
		if w.mode == dedupe.RedisOnly {
			is = &w.redisIs
		}
		is.set(func(op string) error {
			if op == "claim" {
				time.Sleep(lease + time.Second)
			}
			return nil
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Again, d.Action)
		require.Equal(t, consumer.WhyBusy, d.Why, "%v", d.Err)
		require.ErrorIs(t, d.Err, dedupe.ErrLeaseLost)
		require.Zero(t, runs)
		is.up()
		require.Zero(t, w.state("a").Failures)
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("a"), &w.letters).Action)
		require.Equal(t, 1, w.applied("a"))
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
