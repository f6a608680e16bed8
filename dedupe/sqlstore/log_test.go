package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

// INSERT IGNORE truncates and two ids collapse; collations fold; NUL or bad UTF-8 gives 22021: keys are bytes, and only equal ones meet.
func TestKeys_OnlyEqualBytesAreTheSameMessage(t *testing.T) {
	long := strings.Repeat("x", 255)
	ids := []string{
		"Order-a", "order-A", "Ord\u00e9r-a", "Orde\u0301r-a", "Order-a ", "Order-a  ", "Order-a\x00", "\x00", "\xff\xfe", "ß", "ss", "'; DROP TABLE idempotent_log; --",
		`\`, `\\`, "?", ":scope", "$1", "{{log}}", "%", "_", "😀", "İ", "i", long, long[:254], long[:254] + "y", strings.Repeat("x", 2000), strings.Repeat("x", 2001),
	}
	onEach(t, all, func(t *testing.T, d database) {
		l, db := d.migrated(t)
		var reqs []dedupe.ClaimRequest
		for _, id := range ids {
			reqs = append(reqs, claimRequest(key(t, id), newOwner()))
		}
		for i, rep := range l.Claim(t.Context(), reqs) {
			require.NoError(t, rep.Err, "%q", ids[i])
			require.Equal(t, dedupe.Claimed, rep.Verdict, "%q", ids[i])
			require.Equal(t, reqs[i].Owner, inspect(t, l, reqs[i].Key).Owner, "%q", ids[i])
		}
		var rows int
		require.NoError(t, db.Get(&rows, "SELECT COUNT(*) FROM idempotent_log"))
		require.Equal(t, len(ids), rows)
	})
}

func TestBury_ReasonWithAnyBytes_IsKeptReadable(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, _ := d.migrated(t)
		rep := only(t, l.Bury(t.Context(), []dedupe.BuryRequest{{
			Grip: dedupe.Grip{Key: key(t, "a"), Owner: newOwner()}, Unclaimed: true, Reason: "bad \xff and \x00 and 😀 " + strings.Repeat("é", 3000),
		}}))
		require.NoError(t, rep.Err)
		reason := inspect(t, l, key(t, "a")).Reason
		require.True(t, strings.HasPrefix(reason, "bad \uFFFD and \uFFFD and 😀 é"))
		require.Len(t, []rune(reason), 1024)
	})
}

// check, then insert: both run (NServiceBus #4086). Many processes claim one key at once: one wins.
func TestClaim_ManyPoolsAtOnce_OneWins(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		url := d.url(t)
		logs := make([]*sqlstore.Log, 6)
		for i := range logs {
			logs[i] = newLog(t, open(t, url))
			require.NoError(t, logs[i].Migrate(t.Context()))
		}
		for round := range 10 {
			k := key(t, fmt.Sprint(round))
			verdicts := make([]dedupe.Verdict, len(logs))
			var wait sync.WaitGroup
			for i, l := range logs {
				wait.Go(func() {
					rep := l.Claim(context.Background(), []dedupe.ClaimRequest{claimRequest(k, newOwner())})[0]
					verdicts[i] = rep.Verdict
				})
			}
			wait.Wait()
			won := 0
			for _, v := range verdicts {
				if v == dedupe.Claimed {
					won++
				} else {
					require.Equal(t, dedupe.Busy, v)
				}
			}
			require.Equal(t, 1, won)
		}
	})
}

// In a lease upsert assign lease_until last; otherwise 20 of 40 rounds had no winner. Many processes take over one expired claim: one wins, and one death.
func TestClaim_ManyTakeOverOneExpiredClaim_OneWinsAndOneDeathIsCounted(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, _ := d.migrated(t)
		for round := range 10 {
			k := key(t, fmt.Sprint(round))
			r := claimRequest(k, newOwner())
			r.Lease = time.Millisecond
			require.NoError(t, only(t, l.Claim(t.Context(), []dedupe.ClaimRequest{r})).Err)
			require.Eventually(t, func() bool { return inspect(t, l, k).LeaseLeft <= 0 }, 10*time.Second, time.Millisecond)
			reps := make([]dedupe.Reply, 6)
			var wait sync.WaitGroup
			for i := range reps {
				wait.Go(func() { reps[i] = l.Claim(context.Background(), []dedupe.ClaimRequest{claimRequest(k, newOwner())})[0] })
			}
			wait.Wait()
			won := 0
			for _, rep := range reps {
				require.NoError(t, rep.Err)
				if rep.Verdict == dedupe.Claimed {
					won++
					require.True(t, rep.Taken)
				}
			}
			require.Equal(t, 1, won)
			require.Equal(t, 1, inspect(t, l, k).Deaths)
		}
	})
}

// Opposite key order in batches gives 40P01: sort.
func TestClaim_BatchesInOppositeOrder_AreAllAnswered(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, _ := d.migrated(t)
		var wait sync.WaitGroup
		errs := make([]error, 4)
		for side := range errs {
			var reqs []dedupe.ClaimRequest
			for i := range 40 {
				if side%2 == 1 {
					i = 39 - i
				}
				reqs = append(reqs, claimRequest(key(t, fmt.Sprint(i)), newOwner()))
			}
			wait.Go(func() {
				for _, rep := range l.Claim(context.Background(), reqs) {
					errs[side] = errors.Join(errs[side], rep.Err)
				}
			})
		}
		wait.Wait()
		require.NoError(t, errors.Join(errs...))
	})
}

// REPEATABLE READ and SERIALIZABLE give 40001 even with ON CONFLICT; under REPEATABLE READ the insert sees the row and a plain SELECT does
// not (endless loop, Spring #10847). Whatever the isolation of the caller's transactions, an order is sold once.
func TestInTx_AnyIsolation_AppliesOnce(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			onEach(t, servers, func(t *testing.T, d database) {
				s := newShop(t, d, func(c *sqlstore.Config) {
					c.Tx, c.Reruns, c.LockWait = &sql.TxOptions{Isolation: level}, 30, 20*time.Second
				})
				var wait sync.WaitGroup
				errs := make([]error, 12)
				for i := range errs {
					wait.Go(func() {
						_, err := s.consume(context.Background(), fmt.Sprint(i%4))
						for errors.Is(err, dedupe.ErrBusy) {
							_, err = s.consume(context.Background(), fmt.Sprint(i%4))
						}
						errs[i] = err
					})
				}
				wait.Wait()
				require.NoError(t, errors.Join(errs...))
				for i := range 4 {
					require.Equal(t, 1, s.sold(t, fmt.Sprint(i)))
				}
				require.Equal(t, []int{996, 1000}, s.stock(t))
			})
		})
	}
}

// A transaction that read before it wrote fails at once in SQLite (517), whatever busy_timeout. Ours write first.
func TestInTx_SQLiteWithoutImmediate_TwoProcessesDoNotFail(t *testing.T) {
	url := sqlite.url(t)
	s := newShopIn(t, sqlite, newLog(t, open(t, url)), open(t, url))
	plain, err := sqlx.Open("sqlite", strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	l := newLog(t, plain)
	g := newGuard(t, l, dedupe.Transactional)
	var wait sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wait.Go(func() {
			_, errs[i] = g.Do(context.Background(), delivery(fmt.Sprint(i)), func(ctx context.Context, _ *dedupe.Claim) error {
				return l.InTx(ctx, func(tx *sqlx.Tx) error { return s.sell(ctx, tx, fmt.Sprint(i)) })
			})
		})
	}
	wait.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, []int{992, 1000}, s.stock(t))
}

// unbounded purge (NServiceBus.Sql #778, Wolverine #3116); reaper deletes a live lock (sidekiq-unique-jobs #580).
func TestPurge_IsBoundedAndSparesWhatIsNotOver(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, db := d.migrated(t)
		var complete []dedupe.CompleteRequest
		for i := range 1200 {
			complete = append(complete, dedupe.CompleteRequest{Grip: dedupe.Grip{Key: key(t, fmt.Sprint("done", i)), Owner: newOwner()}, Unclaimed: true, Retention: time.Hour})
		}
		for _, rep := range l.Complete(t.Context(), complete) {
			require.NoError(t, rep.Err)
		}
		hour := time.Hour.Milliseconds()
		db.MustExec(rebound(db, "UPDATE idempotent_log SET expires_at = expires_at - ?"), 2*hour) // an hour over
		live, expired, free, dead, fresh := key(t, "live"), key(t, "expired"), key(t, "free"), key(t, "dead"), key(t, "fresh")
		require.NoError(t, claim(t, l, live, newOwner()).Err)
		require.NoError(t, claim(t, l, expired, newOwner()).Err)
		require.NoError(t, only(t, l.Release(t.Context(), []dedupe.ReleaseRequest{{Grip: dedupe.Grip{Key: free, Owner: newOwner()}, Unclaimed: true}})).Err)
		require.NoError(t, only(t, l.Bury(t.Context(), []dedupe.BuryRequest{{Grip: dedupe.Grip{Key: dead, Owner: newOwner()}, Unclaimed: true}})).Err)
		db.MustExec("UPDATE idempotent_log SET updated_at = updated_at - 100000000")
		db.MustExec(rebound(db, "UPDATE idempotent_log SET lease_until = lease_until - 100000000 WHERE msg_id = ?"), []byte("expired"))
		require.NoError(t, only(t, l.Complete(t.Context(), []dedupe.CompleteRequest{{Grip: dedupe.Grip{Key: fresh, Owner: newOwner()}, Unclaimed: true, Retention: time.Hour}})).Err)

		other, err := l.Purge(t.Context(), "another-scope", time.Hour, 5000)
		require.NoError(t, err)
		require.Zero(t, other)
		var got []int
		for range 3 {
			n, err := l.Purge(t.Context(), "inventory", time.Hour, 700)
			require.NoError(t, err)
			got = append(got, n)
		}
		require.Equal(t, []int{700, 502, 0}, got)
		for k, want := range map[dedupe.Key]dedupe.State{
			live: dedupe.StateClaimed, dead: dedupe.StateDead, fresh: dedupe.StateDone, expired: dedupe.StateAbsent, free: dedupe.StateAbsent,
		} {
			require.Equal(t, want, state(t, l, k), k.ID())
		}
		// batch 0 loops, negative retention deletes all (protean #1072)
		for _, bad := range []struct {
			age   time.Duration
			limit int
		}{{time.Hour, 0}, {time.Hour, -1}, {0, 10}, {-time.Hour, 10}} {
			_, err := l.Purge(t.Context(), "inventory", bad.age, bad.limit)
			require.Error(t, err)
		}
	})
}

// A handler works on a free row in an open transaction: the purge passes it over, or gives up soon, and blocks nobody.
func TestPurge_RowInAnOpenTransaction_IsNotWaitedForLong(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d)
		k := s.key(t, "o-1")
		require.NoError(t, only(t, s.log.Release(t.Context(), []dedupe.ReleaseRequest{{Grip: dedupe.Grip{Key: k, Owner: newOwner()}, Unclaimed: true}})).Err)
		s.db.MustExec("UPDATE idempotent_log SET updated_at = updated_at - 100000000")
		end := held(t, s, "o-1")
		quick := newLog(t, s.db, func(c *sqlstore.Config) { c.Timeout = 2 * time.Second })
		n, err := quick.Purge(t.Context(), "inventory", time.Hour, 100)
		require.Zero(t, n)
		if err != nil {
			require.ErrorIs(t, err, dedupe.ErrUnavailable)
		}
		require.NoError(t, end(true))
		require.Equal(t, dedupe.StateDone, state(t, s.log, k))
	})
}

// A claim made before a restore is not completed after it; Done stays done and is told with the new incarnation.
func TestRestored_OldClaimsAreNotCompletedAndDoneIsOfTheNewIncarnation(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, _ := d.migrated(t)
		done, open := key(t, "done"), key(t, "open")
		require.NoError(t, only(t, l.Complete(t.Context(), []dedupe.CompleteRequest{{Grip: dedupe.Grip{Key: done, Owner: newOwner()}, Unclaimed: true, Retention: time.Hour}})).Err)
		c := claim(t, l, open, newOwner())
		require.NoError(t, c.Err)
		before, err := l.Incarnation(t.Context())
		require.NoError(t, err)
		after, err := l.Restored(t.Context(), dedupe.Audit{By: "ann", Reason: "backup of Monday"})
		require.NoError(t, err)
		require.NotEqual(t, before, after)
		now, err := l.Incarnation(t.Context())
		require.NoError(t, err)
		require.Equal(t, after, now, "at once, not after a heartbeat")
		rep := only(t, l.Complete(t.Context(), []dedupe.CompleteRequest{{
			Grip: dedupe.Grip{Key: open, Owner: c.Record.Owner, Incarnation: c.Record.Incarnation}, Retention: time.Hour,
		}}))
		require.ErrorIs(t, rep.Err, dedupe.ErrStale)
		require.Equal(t, dedupe.StateClaimed, state(t, l, open))
		require.Equal(t, after, inspect(t, l, done).Incarnation)
	})
}

// A dump restored into another server is another life of the log, without anybody saying so.
func TestIncarnation_PostgreSQL_NamesTheCluster(t *testing.T) {
	l, db := postgres.migrated(t)
	var system, timeline string
	require.NoError(t, db.Get(&system, "SELECT system_identifier::text FROM pg_control_system()"))
	require.NoError(t, db.Get(&timeline, "SELECT lpad(to_hex(timeline_id), 8, '0') FROM pg_control_checkpoint()"))
	inc, err := l.Incarnation(t.Context())
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(inc), "."+system+"."+timeline), inc)
	require.Equal(t, inc, claim(t, l, key(t, "a"), newOwner()).Record.Incarnation, "of the statement that wrote it")
}

// A cut of the heartbeat's connection means reading it again, on another.
func TestIncarnation_HeartbeatsConnectionIsCut_IsReadAgain(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		l, db := d.migrated(t)
		db.SetMaxOpenConns(3)
		_, err := l.Incarnation(t.Context())
		require.NoError(t, err)
		db.MustExec("UPDATE idempotent_log_meta SET incarnation = 'another' WHERE incarnation <> ''")
		others := "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
		kill := "SELECT pg_terminate_backend($1)"
		if d.name == "MariaDB" {
			others, kill = "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()", "KILL ?"
		}
		var ids []int64
		require.NoError(t, db.Select(&ids, others))
		require.NotEmpty(t, ids)
		for _, id := range ids {
			db.MustExec(kill, id)
		}
		require.Eventually(t, func() bool { // what was read counts for a second
			inc, err := l.Incarnation(t.Context())
			return err == nil && strings.HasPrefix(string(inc), "another")
		}, 10*time.Second, 50*time.Millisecond)
	})
}

func TestIncarnation_DatabaseGone_IsAnError(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		direct := d.url(t)
		p := newProxy(t, hostOf(t, direct))
		l := newLog(t, open(t, p.through(t, direct)))
		require.NoError(t, l.Migrate(t.Context()))
		_, err := l.Incarnation(t.Context())
		require.NoError(t, err)
		p.stop()
		require.Eventually(t, func() bool {
			_, err = l.Incarnation(t.Context())
			return err != nil
		}, 10*time.Second, 50*time.Millisecond)
		require.True(t, dedupe.IsOutage(err), err)
	})
}

func TestForgetAndReopen_SayWhoAndWhy(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, db := d.migrated(t)
		_, err := l.Enter(t.Context(), dedupe.ScopeRow{Scope: "inventory", Mode: dedupe.Logged, Retention: time.Hour})
		require.NoError(t, err)
		k, by := key(t, "a"), dedupe.Audit{By: "ann", Reason: "ticket 7"}
		require.NoError(t, only(t, l.Bury(t.Context(), []dedupe.BuryRequest{{Grip: dedupe.Grip{Key: k, Owner: newOwner()}, Unclaimed: true}})).Err)
		rec, err := l.Reopen(t.Context(), k, by)
		require.NoError(t, err)
		require.Equal(t, "ann: ticket 7", rec.Reason)
		require.NoError(t, l.Forget(t.Context(), k, by))
		var reason string
		require.NoError(t, db.Get(&reason, rebound(db, "SELECT reason FROM idempotent_log_meta WHERE scope = ?"), []byte("inventory")))
		require.Contains(t, reason, "ann: ticket 7")
		require.Contains(t, reason, k.String())
	})
}

func TestEnter_LargerRetentionIsKeptAndAnotherModeRefused(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, _ := d.migrated(t)
		for _, hours := range []time.Duration{2, 1, 3, 3} {
			_, err := l.Enter(t.Context(), dedupe.ScopeRow{Scope: "s", Mode: dedupe.Logged, Retention: hours * time.Hour})
			require.NoError(t, err)
		}
		kept, err := l.Enter(t.Context(), dedupe.ScopeRow{Scope: "s", Mode: dedupe.Transactional, Retention: time.Hour})
		require.ErrorIs(t, err, dedupe.ErrWrongMode)
		require.ErrorContains(t, err, "ChangeMode")
		require.Equal(t, dedupe.Logged, kept.Mode)
		require.Equal(t, 3*time.Hour, kept.Retention)
		require.NoError(t, l.ChangeMode(t.Context(), "s", dedupe.Transactional, dedupe.Audit{By: "ann", Reason: "moved"}))
		_, err = l.Enter(t.Context(), dedupe.ScopeRow{Scope: "s", Mode: dedupe.Transactional, Retention: time.Hour})
		require.NoError(t, err)
		require.Error(t, l.ChangeMode(t.Context(), "unknown", dedupe.Logged, dedupe.Audit{}))
	})
}
