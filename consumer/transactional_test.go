package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

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

// Another delivery has the row of this message in an open transaction, which no claim shows: only the handler's own insert meets it.
func TestProcess_RowIsInAnothersTransaction_IsWaitedForNoLongerThanBusyWait(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		p := w.pipeline(func(context.Context, *consumer.Message) error { return dedupe.ErrBusy }, func(c *consumer.Config) {
			c.Policy.Busy.Wait = 300 * time.Millisecond
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		d := p.Process(ctx, order("a"), &w.letters)
		require.Equal(t, consumer.Again, d.Action)
		require.Equal(t, consumer.WhyBusy, d.Why, "%v", d.Err)
		require.Equal(t, 300*time.Millisecond, time.Since(start))
		require.Zero(t, w.state("a").Failures)
	})
}

// A handler of batches says in its transaction which message failed, and all of it is rolled back: that was nobody else's failure.
func TestProcessBatch_BatchErrorOfATransactionThatRolledBack_IsSplit(t *testing.T) {
	for name, noted := range map[string]bool{"transaction of the log": true, "own transaction": false} {
		t.Run(name, func(t *testing.T) {
			inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
				p := w.pipeline(nil, func(c *consumer.Config) {
					c.Policy.Retry.Attempts = 2
					c.Handler = nil
					c.BatchHandler = func(_ context.Context, ms []*consumer.Message) error {
						tx := w.db.Begin()
						e := &consumer.BatchError{Errs: make([]error, len(ms))}
						for i, m := range ms {
							if err := w.db.Record(tx, m.Claim()); err != nil {
								return err
							}
							tx.Set(m.ID(), 1)
							if m.ID() == "bad" {
								e.Errs[i] = errNoStock
							}
						}
						if errors.Is(e, errNoStock) {
							for _, m := range ms {
								if noted { // as a log does that sees the end of the transaction
									m.Claim().Note(dedupe.NotRecorded)
								}
							}
							return e
						}
						return tx.Commit()
					}
				})
				ms := []*consumer.Message{order("a"), order("bad"), order("b"), order("c")}
				for i, d := range p.ProcessBatch(t.Context(), ms, &w.letters) {
					require.Equal(t, consumer.Ack, d.Action, "%d: %v", i, d.Err)
				}
				require.Equal(t, []string{consumer.ReasonExhausted}, w.letters.reasons())
				require.Equal(t, "bad", w.letters.got[0].ID)
				for _, id := range []string{"a", "b", "c"} {
					require.Equal(t, 1, w.applied(id))
					require.Zero(t, w.state(id).Failures)
				}
				require.Zero(t, w.applied("bad"))
			})
		})
	}
}
