package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

// sellAll is a batch handler of the shop that notes what it was given.
func (s *shop) sellAll(seen *[]string) func(context.Context, []message) error {
	return sqlstore.TransactionalBatch(s.log, func(ctx context.Context, tx *sqlx.Tx, fresh []message) error {
		*seen = nil
		for _, m := range fresh {
			id := m.Claim().Key().ID()
			*seen = append(*seen, id)
			if err := s.sell(ctx, tx, id); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestTransactionalBatch_HandlerSeesTheNewOnesInTheirOrderAndTheGuardAnswersTheRest(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		_, err := s.consume(t.Context(), "b")
		require.NoError(t, err)
		ms := []message{{s.claim(t, delivery("c"))}, {s.claimAnyway(t, "b")}, {s.claim(t, delivery("a"))}}
		var seen []string
		require.NoError(t, s.sellAll(&seen)(t.Context(), ms))
		require.Equal(t, []string{"c", "a"}, seen)
		outs, errs := s.guard.Complete(t.Context(), ms[0].c, ms[2].c)
		for i := range outs {
			require.NoError(t, errs[i])
			require.Equal(t, dedupe.Claimed, outs[i].Verdict)
		}
		for _, id := range []string{"a", "b", "c"} {
			require.Equal(t, 1, s.sold(t, id))
		}
	})
}

// anomalies are what a guard reports.
type anomalies []string

func (a *anomalies) OnAnomaly(_ context.Context, code string, _ dedupe.Key, _ error) {
	*a = append(*a, code)
}

// A batch leaves out by itself what was applied while it was on its way; only who alone is told ErrDuplicate can swallow it.
func TestBatch_OneIsADuplicate_IsNoAnomaly(t *testing.T) {
	for name, c := range map[string]struct {
		handle func(context.Context, *shop, []message) error
		want   anomalies
	}{
		"TransactionalBatch": {func(ctx context.Context, s *shop, ms []message) error {
			var seen []string
			return s.sellAll(&seen)(ctx, ms)
		}, nil},
		"TransactionalBatch of one": {func(ctx context.Context, s *shop, ms []message) error {
			var seen []string
			return errors.Join(s.sellAll(&seen)(ctx, ms[:1]), s.sellAll(&seen)(ctx, ms[1:]))
		}, nil},
		"RecordBatch": {func(ctx context.Context, s *shop, ms []message) error {
			return s.inOwnTx(ctx, func(tx *sqlx.Tx) error {
				fresh, err := s.log.RecordBatch(ctx, tx, []*dedupe.Claim{ms[0].c, ms[1].c})
				for i := range fresh {
					if fresh[i] {
						err = errors.Join(err, s.sell(ctx, tx, ms[i].c.Key().ID()))
					}
				}
				return err
			})
		}, nil},
		"Record, and ErrDuplicate is swallowed": {func(ctx context.Context, s *shop, ms []message) error {
			for _, m := range ms {
				err := s.inOwnTx(ctx, func(tx *sqlx.Tx) error {
					return errors.Join(s.log.Record(ctx, tx, m.c), s.sell(ctx, tx, m.c.Key().ID()))
				})
				if err != nil && !errors.Is(err, dedupe.ErrDuplicate) {
					return err
				}
			}
			return nil
		}, anomalies{"swallowed-duplicate"}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, all, func(t *testing.T, d database) {
				s := newShop(t, d)
				var got anomalies
				g, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Transactional, Log: s.log, Hooks: []dedupe.Hook{&got}})
				require.NoError(t, err)
				var ms []message
				for _, id := range []string{"a", "b"} {
					out, err := g.Claim(t.Context(), delivery(id))
					require.NoError(t, err)
					ms = append(ms, message{out.Claim})
				}
				_, err = s.consume(t.Context(), "b") // by another process
				require.NoError(t, err)
				require.NoError(t, c.handle(t.Context(), s, ms))
				outs, errs := g.Complete(t.Context(), ms[0].c, ms[1].c)
				require.NoError(t, errors.Join(errs...))
				require.Equal(t, dedupe.Claimed, outs[0].Verdict)
				require.Equal(t, dedupe.Done, outs[1].Verdict)
				require.Equal(t, c.want, got)
				require.Equal(t, []int{1, 1}, []int{s.sold(t, "a"), s.sold(t, "b")})
				require.NoError(t, g.Close(t.Context()))
			})
		})
	}
}

// inOwnTx is a handler's transaction without our help.
func (s *shop) inOwnTx(ctx context.Context, work func(tx *sqlx.Tx) error) error {
	tx, err := s.db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing to roll back after the commit
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// the same id twice in one batch (MassTransit #2502)
func TestTransactionalBatch_SameIDTwice_IsAppliedOnce(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		ms := []message{{s.claim(t, delivery("a"))}, {s.claimAnyway(t, "a")}}
		var seen []string
		require.NoError(t, s.sellAll(&seen)(t.Context(), ms))
		require.Equal(t, []string{"a"}, seen)
		require.Equal(t, 1, s.sold(t, "a"))
	})
}

func TestTransactionalBatch_OneFails_NothingIsApplied(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		_, err := s.consume(t.Context(), "c")
		require.NoError(t, err)
		ms := []message{{s.claim(t, delivery("a"))}, {s.claim(t, delivery("b"))}}
		done := s.claimAnyway(t, "c")
		broken := errors.New("no such customer")
		err = sqlstore.TransactionalBatch(s.log, func(ctx context.Context, tx *sqlx.Tx, fresh []message) error {
			return errors.Join(s.sell(ctx, tx, "a"), broken)
		})(t.Context(), append(ms, message{done}))
		require.ErrorIs(t, err, broken)
		require.Zero(t, s.sold(t, "a"))
		for _, m := range ms {
			require.Equal(t, dedupe.StateAbsent, state(t, s.log, m.c.Key()))
			out, failures, err := s.guard.Fail(t.Context(), m.c, broken)
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			require.Equal(t, 1, failures)
		}
		out, _, err := s.guard.Fail(t.Context(), done, broken)
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict, "its row was there before")
	})
}

func TestTransactionalBatch_AllKnown_HandlerDoesNotRun(t *testing.T) {
	s := newShop(t, sqlite)
	_, err := s.consume(t.Context(), "a")
	require.NoError(t, err)
	err = sqlstore.TransactionalBatch(s.log, func(context.Context, *sqlx.Tx, []message) error {
		return errors.New("the work ran")
	})(t.Context(), []message{{s.claimAnyway(t, "a")}})
	require.NoError(t, err)
	require.NoError(t, sqlstore.TransactionalBatch(s.log, func(context.Context, *sqlx.Tx, []message) error {
		return errors.New("the work ran")
	})(t.Context(), nil))
}

// Opposite key order in batches gives 40P01: rows are written sorted by key, whatever the order of the batch.
func TestTransactionalBatch_OppositeOrders_DoNotDeadlock(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d, func(c *sqlstore.Config) { c.Reruns, c.LockWait = -1, 30*time.Second })
		ids := make([]string, 20)
		for i := range ids {
			ids[i] = fmt.Sprintf("o-%02d", i)
		}
		for round := range 5 {
			var wait sync.WaitGroup
			errs := make([]error, 2)
			for side := range errs {
				ms := make([]message, len(ids))
				for i, id := range ids {
					ms[i] = message{s.claimAnyway(t, fmt.Sprintf("%d-%s", round, id))}
				}
				if side == 1 {
					slices.Reverse(ms)
				}
				wait.Go(func() {
					errs[side] = sqlstore.TransactionalBatch(s.log, func(ctx context.Context, tx *sqlx.Tx, fresh []message) error {
						for _, m := range fresh {
							if _, err := tx.ExecContext(ctx, rebound(s.db, "INSERT INTO movement VALUES (?, -1)"), m.c.Key().ID()); err != nil {
								return err
							}
						}
						return nil
					})(t.Context(), ms)
				})
			}
			wait.Wait()
			require.NoError(t, errors.Join(errs...))
		}
		var doubles int
		require.NoError(t, s.db.Get(&doubles, "SELECT COUNT(*) - COUNT(DISTINCT msg) FROM movement"))
		require.Zero(t, doubles)
	})
}

func TestTransactionalBatch_ReplyToTheCommitIsLost_OneRowTellsForAll(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s, p := newShopBehindProxy(t, d)
		ms := []message{{s.claim(t, delivery("a"))}, {s.claim(t, delivery("b"))}}
		err := sqlstore.TransactionalBatch(s.log, func(ctx context.Context, tx *sqlx.Tx, fresh []message) error {
			p.loseAnswerTo("COMMIT")
			return errors.Join(s.sell(ctx, tx, "a"), s.sell(ctx, tx, "b"))
		})(t.Context(), ms)
		require.NoError(t, err)
		require.Equal(t, 1, p.lost())
		outs, errs := s.guard.Complete(t.Context(), ms[0].c, ms[1].c)
		for i := range outs {
			require.NoError(t, errs[i])
			require.Equal(t, dedupe.Claimed, outs[i].Verdict)
		}
	})
}

// One bad request never fails its neighbours, also where the database is the one to find out.
func TestClaim_OneOfABatchIsBlocked_OthersAreAnswered(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d)
		end := held(t, s, "b")
		quick := newLog(t, s.db, func(c *sqlstore.Config) { c.Timeout = 2 * time.Second })
		reps := quick.Claim(t.Context(), []dedupe.ClaimRequest{
			claimRequest(s.key(t, "a"), newOwner()), claimRequest(s.key(t, "b"), newOwner()), claimRequest(s.key(t, "c"), newOwner()),
		})
		require.NoError(t, reps[0].Err)
		require.NoError(t, reps[2].Err)
		require.Equal(t, dedupe.Claimed, reps[0].Verdict)
		require.Equal(t, dedupe.Claimed, reps[2].Verdict)
		if reps[1].Err == nil { // Busy where the server's own limit was shorter than ours
			require.Equal(t, dedupe.Busy, reps[1].Verdict)
		} else {
			require.True(t, dedupe.IsOutage(reps[1].Err), reps[1].Err)
		}
		require.NoError(t, end(true))
	})
}
