package consumer_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// What went wrong for others (STORES, "Failures others met"), and rules of the protocol whose story needs two deliveries at once.

// STORES, undecodable message leaks a lock (Laravel #49890); a duplicate never settled (MassTransit #4857).
func TestKinds_UndecodableMessage_LeavesNoClaimAndEveryCopyIsSettled(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		h := consumer.JSON(func(context.Context, consumer.Decoded[[]int]) error { return nil })
		for range 3 {
			d := w.pipeline(h).Process(t.Context(), order("a"), &w.letters)
			require.Equal(t, consumer.Ack, d.Action)
		}
		require.Equal(t, []string{consumer.ReasonUndecodable}, w.letters.reasons())
		require.Equal(t, dedupe.StateDead, w.state("a").State)
	})
}

// STORES, duplicate counted as an outage (idempot-js #181); Redis error taken for "not acquired" (CarbonScribe #650).
func TestKinds_DuplicateIsNoOutageAndAnOutageIsNotBusy(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.RedisOnly}, func(t *testing.T, w *world) {
		p := w.pipeline(fine)
		p.Process(t.Context(), order("a"), &w.letters)
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Done, d.Verdict)
		w.redisIs.down(dedupe.ErrUnavailable)
		start := time.Now()
		d = p.Process(t.Context(), order("b"), &w.letters)
		require.Equal(t, consumer.Outage, d.Why)
		require.Zero(t, time.Since(start), "told at once, not after the wait for another owner")
	})
}

// STORES, try-lock loser skips and the winner rolls back (oban #1087).
func TestKinds_LoserWaitsAndRunsWhenTheWinnerFails(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		winner := w.pipeline(func(context.Context, *consumer.Message) error { time.Sleep(time.Second); return errNoStock },
			func(c *consumer.Config) { c.Policy.Retry.InPlace = 1 })
		ended := make(chan consumer.Disposition, 1)
		m := order("a")
		go func() { ended <- winner.Process(t.Context(), m, &w.letters) }()
		synctest.Wait()
		d := w.pipeline(fine).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Claimed, d.Verdict)
		require.Equal(t, consumer.Failed, (<-ended).Why)
		require.Equal(t, 1, w.applied("a"))
	})
}

// STORES, tx open while waiting to retry (MassTransit #4299): nothing is held during a backoff.
func TestKinds_BackoffInPlace_HoldsNoClaim(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p := w.pipeline(fails, func(c *consumer.Config) { c.Policy.Retry.Backoff = consumer.Backoff{Initial: time.Minute} })
		ended := make(chan consumer.Disposition, 1)
		ctx, cancel := context.WithCancel(t.Context())
		m := order("a")
		go func() { ended <- p.Process(ctx, m, &w.letters) }()
		synctest.Wait()
		require.Equal(t, dedupe.StateFree, w.state("a").State)
		require.Equal(t, 1, w.state("a").Failures)
		require.Equal(t, dedupe.Claimed, w.pipeline(fine).Process(t.Context(), order("a"), &w.letters).Verdict, "another process goes on with it")
		cancel()
		<-ended
	})
}

// PROTOCOL 5: Conflict is decided against Done only; against a claim in flight it is Busy first.
func TestKinds_OtherPayloadDuringTheFirstRun_IsBusyThenConflict(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		slow := w.pipeline(func(context.Context, *consumer.Message) error { time.Sleep(10 * time.Second); return nil })
		ended := make(chan consumer.Disposition, 1)
		m := order("a")
		go func() { ended <- slow.Process(t.Context(), m, &w.letters) }()
		synctest.Wait()
		other := order("a")
		other.Value = []byte("other")
		require.Equal(t, consumer.WhyBusy, w.pipeline(fine).Process(t.Context(), other, &w.letters).Why)
		require.Empty(t, w.letters.reasons())
		<-ended
		require.Equal(t, dedupe.Conflict, w.pipeline(fine).Process(t.Context(), other, &w.letters).Verdict)
		require.Equal(t, []string{consumer.ReasonConflict}, w.letters.reasons())
	})
}

// PROTOCOL 5: bury asks the log first: done -> ack without a letter.
func TestKinds_AppliedByAnotherMeanwhile_NoLetterIsWritten(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		w.redisIs.down(dedupe.ErrUnavailable) // two runs at once, as after a lost Redis
		p := w.pipeline(func(ctx context.Context, _ *consumer.Message) error {
			require.Equal(t, consumer.Ack, w.pipeline(fine).Process(context.WithoutCancel(t.Context()), order("a"), &w.letters).Action)
			return consumer.Permanent(errNoStock)
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Done, d.Verdict)
		require.False(t, d.Letter)
		require.Empty(t, w.letters.reasons())
		require.Equal(t, 1, w.applied("a"))
	})
}

// PROTOCOL 3 and 4: lock waits on the own row are Busy and never count.
func TestKinds_LockWaitInTheHandler_IsBusyAndNotCounted(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		waits := 5
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			if waits--; waits >= 0 {
				return &dedupe.BusyError{RetryIn: time.Second}
			}
			return nil
		}, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "%v", d.Err)
		require.Equal(t, 1, w.applied("a"))
		require.Empty(t, w.letters.reasons())
	})
}

// PROTOCOL 4: an unknown commit is looked at: ours is acknowledged; otherwise it runs again, and nothing is counted.
func TestKinds_UnknownCommit_IsLookedAtAndNeverCounted(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		arrives, runs := true, 0
		p := w.pipeline(nil, func(c *consumer.Config) {
			c.Policy.Retry.Attempts = 1
			c.Handler = func(_ context.Context, m *consumer.Message) error {
				runs++
				tx := w.db.Begin()
				if err := w.db.Record(tx, m.Claim()); err != nil {
					return err
				}
				n, _ := tx.Get(m.ID()).(int)
				tx.Set(m.ID(), n+1)
				if arrives {
					require.NoError(t, tx.Commit())
				}
				m.Claim().Note(dedupe.CommitUnknown)
				return dedupe.ErrOutcomeUnknown
			}
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "%v", d.Err)
		require.Equal(t, dedupe.Done, d.Verdict)
		require.Equal(t, 1, runs)

		arrives = false
		d = p.Process(t.Context(), order("b"), &w.letters)
		require.Equal(t, consumer.Outage, d.Why)
		arrives = true
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("b"), &w.letters).Action)
		require.Equal(t, 1, w.applied("a"))
		require.Equal(t, 1, w.applied("b"))
		require.Empty(t, w.letters.reasons())
	})
}

// PROTOCOL 3: recorded and an error: done, no retry, no letter.
func TestKinds_ErrorAfterTheCommit_IsDone(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		p := w.pipeline(nil, func(c *consumer.Config) {
			c.Handler = func(ctx context.Context, m *consumer.Message) error {
				if err := w.db.InTx(ctx, func(tx *memstore.Tx) error { tx.Set(m.ID(), 1); return nil }); err != nil {
					return err
				}
				return consumer.Permanent(errNoStock)
			}
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Done, d.Verdict)
		require.Empty(t, w.letters.reasons())
		require.Equal(t, 1, w.applied("a"))
	})
}

// PROTOCOL 6: a nested delivery of the same key is refused: it would wait for itself.
func TestKinds_NestedProcessOfTheSameMessage_IsRefused(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		var inner consumer.Disposition
		var p *consumer.Pipeline
		p = w.pipeline(func(ctx context.Context, m *consumer.Message) error {
			if m.Offset > 0 {
				inner = p.Process(ctx, &consumer.Message{Position: consumer.Position{Topic: "orders"}, Value: m.Value, Headers: m.Headers}, &w.letters)
			}
			return nil
		})
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("a"), &w.letters).Action)
		require.Equal(t, consumer.Halt, inner.Action)
		require.ErrorIs(t, inner.Err, dedupe.ErrNested)
		require.Equal(t, 1, w.applied("a"))
	})
}
