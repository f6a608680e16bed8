package sqlstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

// recordTwice delivers order id twice to a handler that records in a transaction of its own kind, and expects one effect. inTx runs
// work in such a transaction and commits it if work returns nil.
func recordTwice(t *testing.T, s *shop, inTx func(ctx context.Context, work func(sqlstore.Execer) error) error) {
	t.Helper()
	var verdicts []dedupe.Verdict
	for range 2 {
		out, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, c *dedupe.Claim) error {
			return inTx(ctx, func(tx sqlstore.Execer) error {
				if err := s.log.Record(ctx, tx, c); err != nil {
					return err
				}
				return s.sell(ctx, tx, "o-1")
			})
		})
		require.NoError(t, err)
		verdicts = append(verdicts, out.Verdict)
	}
	require.Equal(t, []dedupe.Verdict{dedupe.Claimed, dedupe.Done}, verdicts)
	require.Equal(t, 1, s.sold(t, "o-1"))
}

func TestRecord_Sqlx(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		recordTwice(t, s, func(ctx context.Context, work func(sqlstore.Execer) error) error {
			tx, err := s.db.BeginTxx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
			if err := work(tx); err != nil {
				return err
			}
			return tx.Commit()
		})
	})
}

func TestRecord_DatabaseSQL(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		recordTwice(t, s, func(ctx context.Context, work func(sqlstore.Execer) error) error {
			tx, err := s.db.DB.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
			if err := work(tx); err != nil {
				return err
			}
			return tx.Commit()
		})
	})
}

func TestRecord_ConnectionWithATransactionOfItsOwn(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d)
		recordTwice(t, s, func(ctx context.Context, work func(sqlstore.Execer) error) error {
			conn, err := s.db.DB.Conn(ctx)
			if err != nil {
				return err
			}
			defer conn.Close() //nolint:errcheck // back to the pool
			if _, err := conn.ExecContext(ctx, "BEGIN"); err != nil {
				return err
			}
			end := "COMMIT"
			err = work(conn)
			if err != nil {
				end = "ROLLBACK"
			}
			if _, endErr := conn.ExecContext(ctx, end); endErr != nil {
				return endErr
			}
			return err
		})
	})
}

// The log shares the pool of the business; the row goes through the same native transaction.
func TestRecord_NativePgx(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), postgres.url(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := sqlx.NewDb(stdlib.OpenDBFromPool(pool), "pgx")
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s := newShopIn(t, postgres, newLog(t, db), db)
	recordTwice(t, s, func(ctx context.Context, work func(sqlstore.Execer) error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return work(sqlstore.PgxTx(tx)) })
	})
}

// Through a pooler that keeps no prepared statements (PgBouncer before 1.21): arguments are sent as text.
func TestRecord_PostgresSimpleProtocol(t *testing.T) {
	db := open(t, postgres.url(t)+"&default_query_exec_mode=simple_protocol")
	s := newShopIn(t, postgres, newLog(t, db), db)
	_, err := s.consume(t.Context(), "o-1")
	require.NoError(t, err)
	out, err := s.consume(t.Context(), "o-1")
	require.NoError(t, err)
	require.Equal(t, dedupe.Done, out.Verdict)
	require.Equal(t, 1, s.sold(t, "o-1"))
}

func TestRecord_Gorm(t *testing.T) {
	dialectors := map[string]func(s *shop) gorm.Dialector{
		"PostgreSQL": func(s *shop) gorm.Dialector { return gormpostgres.New(gormpostgres.Config{Conn: s.db.DB}) },
		// gorm's own dialect for MySQL is not needed to see what its transactions are.
		"MariaDB": func(*shop) gorm.Dialector { return tests.DummyDialector{} },
	}
	onEach(t, servers, func(t *testing.T, d database) {
		s := newShop(t, d)
		orm, err := gorm.Open(dialectors[d.name](s), &gorm.Config{ConnPool: s.db.DB, Logger: logger.Discard})
		require.NoError(t, err)
		recordTwice(t, s, func(ctx context.Context, work func(sqlstore.Execer) error) error {
			return orm.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return work(tx.Statement.ConnPool) })
		})
	})
}

func TestRecord_AnythingElse(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		recordTwice(t, s, func(ctx context.Context, work func(sqlstore.Execer) error) error {
			tx := s.db.MustBegin()
			defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
			err := work(sqlstore.ExecFunc(func(ctx context.Context, query string, args ...any) (int64, error) {
				res, err := tx.ExecContext(ctx, query, args...)
				if err != nil {
					return 0, err
				}
				return res.RowsAffected()
			}))
			if err != nil {
				return err
			}
			return tx.Commit()
		})
	})
}

// A pool of the business with clientFoundRows=true: an insert that met a row must not look like a new one, whoever made the transaction.
func TestRecord_ClientFoundRowsInTheCallersPool_DuplicateStaysADuplicate(t *testing.T) {
	s := newShop(t, mariadb)
	_, err := s.consume(t.Context(), "o-1")
	require.NoError(t, err)
	found := foundRowsPool(t, s.db)
	c := s.claimAnyway(t, "o-1")
	tx := found.MustBegin()
	defer tx.Rollback() //nolint:errcheck // the end of the test
	require.ErrorIs(t, s.log.Record(t.Context(), tx, c), dedupe.ErrDuplicate)
}

// A result that was set before Record is in the row.
func TestRecord_ResultSetBefore_IsInTheRow(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		c := s.claim(t, delivery("o-1"))
		require.NoError(t, c.SetResult([]byte("receipt")))
		require.NoError(t, s.record(t, c))
		require.Equal(t, "receipt", string(inspect(t, s.log, c.Key()).Result))
	})
}

func TestRecord_TransactionHasEnded_IsNoOutage(t *testing.T) {
	s := newShop(t, sqlite)
	c := s.claim(t, delivery("o-1"))
	tx := s.db.MustBegin()
	require.NoError(t, tx.Rollback())
	err := s.log.Record(t.Context(), tx, c)
	require.Error(t, err)
	require.False(t, dedupe.IsOutage(err))
}

func TestRecordBatch_SaysWhichAreNew(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		s := newShop(t, d)
		require.NoError(t, s.record(t, s.claim(t, delivery("b"))))
		// "a" comes twice, and "b" is done.
		cs := []*dedupe.Claim{s.claim(t, delivery("c")), s.claimAnyway(t, "b"), s.claim(t, delivery("a")), s.claimAnyway(t, "a")}
		tx := s.db.MustBegin()
		fresh, err := s.log.RecordBatch(t.Context(), tx, cs)
		require.NoError(t, err)
		require.Equal(t, []bool{true, false, true, false}, fresh)
		require.NoError(t, tx.Commit())
		require.Equal(t, dedupe.StateDone, state(t, s.log, cs[0].Key()))
	})
}

// A handler that records and does not commit has applied nothing, whatever it returns.
func TestRecord_NotCommitted_IsErrNotApplied(t *testing.T) {
	s := newShop(t, postgres)
	_, err := s.guard.Do(t.Context(), delivery("o-1"), func(ctx context.Context, c *dedupe.Claim) error {
		tx := s.db.MustBegin()
		defer tx.Rollback() //nolint:errcheck // what the test is about
		return s.log.Record(ctx, tx, c)
	})
	require.ErrorIs(t, err, dedupe.ErrNotApplied)
	require.Eventually(t, func() bool { return state(t, s.log, s.key(t, "o-1")) != dedupe.StateDone }, 5*time.Second, 10*time.Millisecond)
}
