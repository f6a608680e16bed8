package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

func TestInTx_RowAndEffectCommitTogetherOnce(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		for range 3 { // three deliveries, one effect
			out, err := s.consume(t.Context(), "o-1")
			require.NoError(t, err)
			require.Contains(t, []dedupe.Verdict{dedupe.Claimed, dedupe.Done}, out.Verdict)
		}
		require.Equal(t, 1, s.sold(t, "o-1"))
		require.Equal(t, dedupe.StateDone, state(t, s.log, s.key(t, "o-1")))
	})
}

func TestInTx_HandlerFails_RowAndEffectRollBack(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		broken := errors.New("no such customer")
		_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
			return s.log.InTx(ctx, func(tx *sqlx.Tx) error { return errors.Join(s.sell(ctx, tx, "o-1"), broken) })
		})
		require.ErrorIs(t, err, broken)
		require.False(t, dedupe.IsOutage(err))
		require.Zero(t, s.sold(t, "o-1"))
		rec := inspect(t, s.log, s.key(t, "o-1"))
		require.Equal(t, dedupe.StateFree, rec.State)
		require.Equal(t, 1, rec.Failures)
		_, err = s.consume(t.Context(), "o-1")
		require.NoError(t, err)
		require.Equal(t, 1, s.sold(t, "o-1"))
	})
}

func TestInTx_HandlerPanics_RollsBackAndPanicsOn(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		require.PanicsWithValue(t, "boom", func() {
			_, _ = s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
				return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
					require.NoError(t, s.sell(ctx, tx, "o-1"))
					panic("boom")
				})
			})
		})
		require.Zero(t, s.sold(t, "o-1"))
		_, err := s.consume(t.Context(), "o-1")
		require.NoError(t, err)
	})
}

func TestInTx_ResultCommitsWithTheRowAndIsReplayed(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, c *dedupe.Claim) error {
			return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
				require.NoError(t, s.sell(ctx, tx, "o-1"))
				return c.SetResult([]byte("invoice 7\x00\xff"))
			})
		})
		require.NoError(t, err)
		out, err := s.consume(t.Context(), "o-1")
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict)
		require.Equal(t, []byte("invoice 7\x00\xff"), out.Record.Result)
	})
}

// PROTOCOL 3: an error before the commit, never an empty replay.
func TestInTx_ResultOverTheCap_FailsBeforeTheCommit(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, c *dedupe.Claim) error {
			return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
				require.NoError(t, s.sell(ctx, tx, "o-1"))
				return c.SetResult(make([]byte, 5000))
			})
		})
		require.ErrorIs(t, err, dedupe.ErrResultTooLarge)
		require.Zero(t, s.sold(t, "o-1"))
	})
}

// PROTOCOL 3: a second InTx on a claim whose commit is known is ErrRecorded.
func TestInTx_SecondOnTheSameClaim_IsErrRecordedAndAppliesNothing(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		var second error
		out, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
			work := func(tx *sqlx.Tx) error { return s.sell(ctx, tx, "o-1") }
			if err := s.log.InTx(ctx, work); err != nil {
				return err
			}
			second = s.log.InTx(ctx, work)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		require.ErrorIs(t, second, dedupe.ErrRecorded)
		require.Equal(t, 1, s.sold(t, "o-1"))
	})
}

func TestInTx_WithoutAClaim_IsErrNoClaim(t *testing.T) {
	s := newShop(t, sqlite)
	err := s.log.InTx(t.Context(), func(*sqlx.Tx) error { t.Error("the work ran"); return nil })
	require.ErrorIs(t, err, dedupe.ErrNoClaim)
	require.ErrorIs(t, s.log.Record(t.Context(), s.db, nil), dedupe.ErrNoClaim)
}

func TestInTx_InLoggedMode_IsErrWrongMode(t *testing.T) {
	l, _ := sqlite.migrated(t)
	g := newGuard(t, l, dedupe.Logged)
	_, err := g.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
		return l.InTx(ctx, func(*sqlx.Tx) error { t.Error("the work ran"); return nil })
	})
	require.ErrorIs(t, err, dedupe.ErrWrongMode)
}

func TestInTx_OfAnotherLog_IsErrNotRecorded(t *testing.T) {
	s := newShop(t, sqlite)
	other, _ := sqlite.migrated(t)
	c := s.claim(t, delivery("o-1"))
	require.ErrorIs(t, other.Record(t.Context(), s.db, c), dedupe.ErrNotRecorded)
	// The same tables through the same pool are the same log.
	require.Equal(t, s.log.Identity(), newLog(t, s.db).Identity())
	require.NotEqual(t, s.log.Identity(), newLog(t, s.db, func(c *sqlstore.Config) { c.Table = "other" }).Identity())
}

// PROTOCOL 3: zero rows inserted is not "done". Each state a row may be in, and what a recording transaction makes of it.
func TestInTx_EveryStateOfTheRow_IsAnsweredByTheState(t *testing.T) {
	marked := func(d dedupe.Delivery) dedupe.Delivery { d.Redriven = true; return d }
	cases := []struct {
		name    string
		prepare func(t *testing.T, s *shop, k dedupe.Key)
		redrive bool
		applied bool
		verdict dedupe.Verdict
	}{
		{"absent", func(*testing.T, *shop, dedupe.Key) {}, false, true, dedupe.Claimed},
		{"free", func(t *testing.T, s *shop, k dedupe.Key) {
			require.NoError(t, only(t, s.log.Release(t.Context(), []dedupe.ReleaseRequest{{Grip: dedupe.Grip{Key: k, Owner: newOwner()}, Unclaimed: true, Failed: true}})).Err)
		}, false, true, dedupe.Claimed},
		{"claimed by another, live", func(t *testing.T, s *shop, k dedupe.Key) {
			require.Equal(t, dedupe.Claimed, claim(t, s.log, k, newOwner()).Verdict)
		}, false, false, dedupe.Busy},
		{"claimed by another, expired", func(t *testing.T, s *shop, k dedupe.Key) {
			r := claimRequest(k, newOwner())
			r.Lease = time.Millisecond
			require.NoError(t, only(t, s.log.Claim(t.Context(), []dedupe.ClaimRequest{r})).Err)
			require.Eventually(t, func() bool { return inspect(t, s.log, k).LeaseLeft <= 0 }, 10*time.Second, time.Millisecond)
		}, false, true, dedupe.Claimed},
		{"done", func(t *testing.T, s *shop, k dedupe.Key) {
			require.NoError(t, only(t, s.log.Complete(t.Context(), []dedupe.CompleteRequest{{Grip: dedupe.Grip{Key: k, Owner: newOwner()}, Unclaimed: true, Retention: time.Hour}})).Err)
		}, false, false, dedupe.Done},
		{"dead", bury, false, false, dedupe.Dead},
		{"dead, and the copy is marked", bury, true, true, dedupe.Claimed},
		{"dead in another incarnation", func(t *testing.T, s *shop, k dedupe.Key) {
			bury(t, s, k)
			_, err := s.log.Restored(t.Context(), dedupe.Audit{By: "test", Reason: "restore"})
			require.NoError(t, err)
		}, false, true, dedupe.Claimed},
	}
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				id := strings.ReplaceAll(c.name, " ", "-")
				c.prepare(t, s, s.key(t, id))
				dl := delivery(id)
				if c.redrive {
					dl = marked(dl)
				}
				dl.Fingerprint = dedupe.NoFingerprint
				out, err := s.guard.Do(t.Context(), dl, func(ctx context.Context, _ *dedupe.Claim) error {
					return s.log.InTx(ctx, func(tx *sqlx.Tx) error { return s.sell(ctx, tx, id) })
				})
				if c.verdict == dedupe.Busy {
					require.ErrorIs(t, err, dedupe.ErrBusy)
				} else {
					require.NoError(t, err)
					require.Equal(t, c.verdict, out.Verdict)
				}
				want := 0
				if c.applied {
					want = 1
					require.Equal(t, dedupe.StateDone, state(t, s.log, s.key(t, id)))
				}
				require.Equal(t, want, s.sold(t, id))
			})
		}
	})
}

func bury(t *testing.T, s *shop, k dedupe.Key) {
	require.NoError(t, only(t, s.log.Bury(t.Context(), []dedupe.BuryRequest{{Grip: dedupe.Grip{Key: k, Owner: newOwner()}, Unclaimed: true, Reason: "exhausted"}})).Err)
}

// held begins a transaction of order id that has written its row, and tells how to end it.
func held(t *testing.T, s *shop, id string) (end func(commit bool) error) {
	t.Helper()
	c := s.claim(t, delivery(id))
	tx, err := s.db.Beginx()
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // where the test failed before its end
	require.NoError(t, s.log.Record(t.Context(), tx, c))
	require.NoError(t, s.sell(t.Context(), tx, id))
	return func(commit bool) error {
		if commit {
			return tx.Commit()
		}
		return tx.Rollback()
	}
}

// Two inserters of one key: the second waits for the first, and does what the first's end says.
func TestInTx_TwoInserters_TheSecondDoesWhatTheFirstsEndSays(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d, func(c *sqlstore.Config) { c.LockWait = 30 * time.Second })
		for _, c := range []struct {
			id     string
			commit bool
			want   dedupe.Verdict
		}{{"the-first-commits", true, dedupe.Done}, {"the-first-rolls-back", false, dedupe.Claimed}} {
			t.Run(c.id, func(t *testing.T) {
				end := held(t, s, c.id)
				type answer struct {
					out dedupe.Outcome
					err error
				}
				second := make(chan answer)
				go func() {
					out, err := s.consume(t.Context(), c.id)
					second <- answer{out, err}
				}()
				s.waitUntilBlocked(t)
				require.NoError(t, end(c.commit))
				a := <-second
				require.NoError(t, a.err)
				require.Equal(t, c.want, a.out.Verdict)
				require.Equal(t, 1, s.sold(t, c.id))
			})
		}
	})
}

// waitUntilBlocked waits until a session of the database waits for another's lock.
func (s *shop) waitUntilBlocked(t testing.TB) {
	t.Helper()
	query := "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	if s.name == "MariaDB" {
		query = "SELECT COUNT(*) FROM information_schema.INNODB_TRX t JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id WHERE p.DB = DATABASE() AND t.trx_state = 'LOCK WAIT'"
	}
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, s.db.Get(&n, query))
		return n > 0
	}, 20*time.Second, 150*time.Millisecond) // INNODB_TRX is a cache that is not renewed while it is read more often than every 100 ms
}

// PROTOCOL 3: a lock wait on the own row is Busy, after a bounded time.
func TestInTx_RowIsInAnothersOpenTransaction_IsBusyAndCountsNothing(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d, func(c *sqlstore.Config) { c.LockWait = 100 * time.Millisecond })
		end := held(t, s, "o-1")
		_, err := s.consume(t.Context(), "o-1")
		require.ErrorIs(t, err, dedupe.ErrBusy)
		require.NoError(t, end(false))
		require.Equal(t, dedupe.StateAbsent, state(t, s.log, s.key(t, "o-1")), "a lock wait is no attempt")
	})
}

// DECISIONS 3: to bury a message that another delivery is applying is Busy, and nothing is written.
func TestBury_RowIsInAnothersOpenTransaction_IsStaleAndBusy(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d)
		quick := newLog(t, s.db, func(c *sqlstore.Config) { c.Timeout = 2 * time.Second })
		end := held(t, s, "o-1")
		rep := only(t, quick.Bury(t.Context(), []dedupe.BuryRequest{{Grip: dedupe.Grip{Key: s.key(t, "o-1"), Owner: newOwner()}, Unclaimed: true}}))
		require.ErrorIs(t, rep.Err, dedupe.ErrStale)
		require.Equal(t, dedupe.Busy, rep.Verdict)
		// Whoever wants to free it or to complete it is told that it was not done.
		rep = only(t, quick.Release(t.Context(), []dedupe.ReleaseRequest{{Grip: dedupe.Grip{Key: s.key(t, "o-1"), Owner: newOwner()}, Unclaimed: true}}))
		require.ErrorIs(t, rep.Err, dedupe.ErrUnavailable)
		require.NoError(t, end(true))
		require.Equal(t, dedupe.StateDone, state(t, s.log, s.key(t, "o-1")))
	})
}

// serialization failure not retried (Spring #3567, watermill #223), and deadlocks.
func TestInTx_Deadlock_RunsAgainAndAppliesOnce(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d, func(c *sqlstore.Config) { c.LockWait = 20 * time.Second })
		// Two messages take the same two rows in opposite order, and meet in the middle.
		var met sync.WaitGroup
		met.Add(2)
		runs := make(chan int, 2)
		sell := func(id, first, second string) error {
			n := 0
			_, err := s.guard.Do(t.Context(), delivery(id), func(ctx context.Context, _ *dedupe.Claim) error {
				return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
					n++
					for i, sku := range []string{first, second} {
						if _, err := tx.ExecContext(ctx, rebound(s.db, "UPDATE stock SET quantity = quantity - 1 WHERE sku = ?"), sku); err != nil {
							return err
						}
						if n == 1 && i == 0 {
							met.Done()
							met.Wait()
						}
					}
					_, err := tx.ExecContext(ctx, rebound(s.db, "INSERT INTO movement VALUES (?, -1)"), id)
					return err
				})
			})
			runs <- n
			return err
		}
		errs := make(chan error, 2)
		go func() { errs <- sell("o-1", "bolt", "nut") }()
		go func() { errs <- sell("o-2", "nut", "bolt") }()
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		require.GreaterOrEqual(t, <-runs+<-runs, 3, "one of the two was the victim and ran again")
		require.Equal(t, 1, s.sold(t, "o-1"))
		require.Equal(t, 1, s.sold(t, "o-2"))
		require.Equal(t, []int{998, 998}, s.stock(t))
	})
}

func (s *shop) stock(t testing.TB) (quantities []int) {
	t.Helper()
	require.NoError(t, s.db.Select(&quantities, "SELECT quantity FROM stock ORDER BY sku"))
	return quantities
}

func TestInTx_DeadlockWithoutReruns_IsUnavailableAndNoAttempt(t *testing.T) {
	s := newShop(t, postgres, func(c *sqlstore.Config) { c.Reruns = -1 })
	_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
		return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
			_, err := tx.ExecContext(ctx, "DO $$ BEGIN RAISE EXCEPTION 'as if' USING ERRCODE = '40P01'; END $$")
			return err
		})
	})
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	require.Equal(t, dedupe.StateAbsent, state(t, s.log, s.key(t, "o-1")))
}

// A deadlock that a handler swallows has rolled back the row in MySQL, where COMMIT succeeds all the same.
func TestInTx_RolledBackInTheMiddle_IsNotTakenForCommitted(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
			return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
				require.NoError(t, s.sell(ctx, tx, "o-1"))
				if d.name == "PostgreSQL" {
					_, err := tx.ExecContext(ctx, "SELECT 1 / 0") // after it, only a rollback is possible
					require.Error(t, err)
					return nil
				}
				_, err := tx.ExecContext(ctx, "ROLLBACK") // as a deadlock in MySQL and a full disk in SQLite do
				require.NoError(t, err)
				return nil
			})
		})
		require.Error(t, err)
		require.False(t, dedupe.IsOutage(err), err)
		require.Zero(t, s.sold(t, "o-1"))
		require.NotEqual(t, dedupe.StateDone, state(t, s.log, s.key(t, "o-1")))
	})
}

// "Nothing to do for this one": a handler that rolls back itself must not come again for ever as an outage of the database.
func TestInTx_HandlerRollsBackItself_IsItsOwnFailureAndCounts(t *testing.T) {
	more := errors.New("no stock")
	ends := map[string]struct {
		returned error
		result   []byte
	}{
		"returns nil":                    {},
		"returns nil and sets a result":  {result: []byte("nothing sold")},
		"returns an error of its own":    {returned: more},
		"returns that the tx has ended":  {returned: sql.ErrTxDone},
		"returns both, and has a result": {returned: errors.Join(more, sql.ErrTxDone), result: []byte("nothing sold")},
	}
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		for id, end := range ends {
			for failures := 1; failures <= 2; failures++ {
				_, err := s.guard.Do(t.Context(), delivery(id), func(ctx context.Context, c *dedupe.Claim) error {
					return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
						return errors.Join(s.sell(ctx, tx, id), c.SetResult(end.result), tx.Rollback(), end.returned)
					})
				})
				require.Error(t, err, id)
				require.False(t, dedupe.IsOutage(err), err)
				if end.returned != nil {
					require.ErrorIs(t, err, end.returned)
				}
				rec := inspect(t, s.log, s.key(t, id))
				require.Equal(t, dedupe.StateFree, rec.State, id)
				require.Equal(t, failures, rec.Failures, id)
			}
			require.Zero(t, s.sold(t, id), id)
		}
	})
}

// A statement, which database/sql knows nothing of; in PostgreSQL the COMMIT after it succeeds.
func TestInTx_HandlerSendsARollback_IsItsOwnFailureAndCounts(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
			return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
				_, err := tx.ExecContext(ctx, "ROLLBACK")
				return err
			})
		})
		require.Error(t, err)
		require.False(t, dedupe.IsOutage(err), err)
		rec := inspect(t, s.log, s.key(t, "o-1"))
		require.Equal(t, dedupe.StateFree, rec.State)
		require.Equal(t, 1, rec.Failures)
	})
}

// The row and the effect are there, whoever committed them: another run would apply twice.
func TestInTx_HandlerCommitsItself_IsCommittedWhateverItReturns(t *testing.T) {
	late := errors.New("the customer was not told")
	for name, returned := range map[string]error{"nil": nil, "an error": late, "that the tx has ended": sql.ErrTxDone} {
		t.Run(name, func(t *testing.T) {
			onEach(t, all, func(t *testing.T, d database) {
				s := newShop(t, d)
				var said error
				out, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
					said = s.log.InTx(ctx, func(tx *sqlx.Tx) error {
						return errors.Join(s.sell(ctx, tx, "o-1"), tx.Commit(), returned)
					})
					return said
				})
				require.NoError(t, err)
				require.ErrorIs(t, said, returned)
				require.Contains(t, []dedupe.Verdict{dedupe.Claimed, dedupe.Done}, out.Verdict)
				require.Equal(t, 1, s.sold(t, "o-1"))
				out, err = s.consume(t.Context(), "o-1")
				require.NoError(t, err)
				require.Equal(t, dedupe.Done, out.Verdict)
				require.Equal(t, 1, s.sold(t, "o-1"))
			})
		})
	}
}

// insert by exception aborts the tx (Camel #9286, Spring #3609): a duplicate leaves the transaction usable.
func TestRecord_Duplicate_DoesNotAbortTheTransaction(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		first, second := s.claim(t, delivery("o-1")), s.claim(t, delivery("o-1"))
		require.NoError(t, s.record(t, first))
		tx, err := s.db.Beginx()
		require.NoError(t, err)
		defer tx.Rollback()
		require.ErrorIs(t, s.log.Record(t.Context(), tx, second), dedupe.ErrDuplicate)
		_, err = tx.Exec("INSERT INTO movement VALUES ('free', 0)")
		require.NoError(t, err)
	})
}

// record commits the row of c in a transaction of its own.
func (s *shop) record(t testing.TB, c *dedupe.Claim) error {
	t.Helper()
	tx, err := s.db.Beginx()
	require.NoError(t, err)
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	if err := s.log.Record(context.Background(), tx, c); err != nil {
		return err
	}
	return tx.Commit()
}

func TestInTx_SessionLimits_AreSetInsideAndGoneOutside(t *testing.T) {
	for _, c := range []struct {
		d       database
		setting string
		inside  string
	}{
		{postgres, "SELECT current_setting('lock_timeout') || ' ' || current_setting('idle_in_transaction_session_timeout')", "3s 1min"},
		{mariadb, "SELECT CONCAT(@@SESSION.innodb_lock_wait_timeout, ' ', @@SESSION.wait_timeout)", "3 60"},
	} {
		t.Run(c.d.name, func(t *testing.T) {
			s := newShop(t, c.d, func(c *sqlstore.Config) { c.LockWait = 3 * time.Second })
			s.db.SetMaxOpenConns(2) // the heartbeat's and one more, so that it is the same session
			read := func(q sqlx.Queryer) (value string) {
				require.NoError(t, sqlx.Get(q, &value, c.setting))
				return value
			}
			before := read(s.db)
			require.NotEqual(t, c.inside, before)
			for id, fails := range map[string]error{"o-1": nil, "o-2": errors.New("fails")} {
				_, err := s.guard.Do(t.Context(), delivery(id), func(ctx context.Context, _ *dedupe.Claim) error {
					return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
						require.Equal(t, c.inside, read(tx))
						return fails
					})
				})
				require.ErrorIs(t, err, fails)
				require.Equal(t, before, read(s.db))
			}
		})
	}
}

// A handler that ignores its context and comes back late has failed by itself: that counts, or it would go round for ever.
func TestInTx_HandlerComesBackAfterItsTime_IsItsOwnFailureAndNothingIsApplied(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, _ *dedupe.Claim) error {
			ctx, cancel := context.WithCancelCause(ctx)
			return s.log.InTx(ctx, func(tx *sqlx.Tx) error {
				require.NoError(t, s.sell(ctx, tx, "o-1"))
				cancel(errors.New("handler timeout"))
				return nil
			})
		})
		require.ErrorContains(t, err, "handler timeout")
		require.False(t, dedupe.IsOutage(err), err)
		require.Zero(t, s.sold(t, "o-1"))
		require.Equal(t, 1, inspect(t, s.log, s.key(t, "o-1")).Failures)
	})
}
