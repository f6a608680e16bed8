package sqlstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
	"github.com/idemq/idemq/dedupe/storetest"
)

func prefixed(c *sqlstore.Config) { c.ColumnPrefix = "idem_" }

// A log whose tables and columns are all called otherwise is a log like any other.
func TestLog_InASchemaUnderAnotherNameWithAColumnPrefix_BehavesAsDedupeLogSays(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		db := open(t, d.url(t))
		schema := billing(t, d, db)
		l := newLog(t, db, prefixed, func(c *sqlstore.Config) { c.Schema, c.Table = schema, "shop_log" })
		require.Equal(t, []string{"log-not-migrated"}, codes(check(t, l)))
		s := newShopIn(t, d, l, db)
		require.Empty(t, check(t, l))
		require.NoError(t, l.Migrate(t.Context()), "and again")

		for range 2 { // InTx
			_, err := s.consume(t.Context(), "a")
			require.NoError(t, err)
		}
		for range 2 { // Record
			_, err := s.guard.Do(t.Context(), delivery("b"), func(ctx context.Context, c *dedupe.Claim) error {
				return s.inOwnTx(ctx, func(tx *sqlx.Tx) error {
					return errors.Join(c.SetResult([]byte("receipt")), l.Record(ctx, tx, c), s.sell(ctx, tx, "b"))
				})
			})
			require.NoError(t, err)
		}
		require.Equal(t, 1, s.sold(t, "a"))
		require.Equal(t, 1, s.sold(t, "b"))
		require.Equal(t, "receipt", string(inspect(t, l, s.key(t, "b")).Result))

		if !testing.Short() {
			storetest.Run(t, harness{l})
		}
	})
}

func TestColumnPrefix_TablesHaveAnother_IsRefusedWithTheRemedy(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, db := d.migrated(t)
		require.NoError(t, l.Close())
		other := newLog(t, db, prefixed)
		require.NotEmpty(t, codes(check(t, other)))
		for _, err := range []error{check(t, other)[0], claim(t, other, key(t, "a"), newOwner()).Err} {
			require.ErrorContains(t, err, "no column idem_schema_version")
			require.ErrorContains(t, err, "Config.ColumnPrefix")
		}
		require.Error(t, other.Migrate(t.Context()), "the tables that there are stay as they are")
		require.Equal(t, dedupe.Claimed, claim(t, l, key(t, "a"), newOwner()).Verdict)
	})
}

func TestCheck_WithAColumnPrefix_NamesTheColumnsAsTheyAre(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, db := d.migrated(t, prefixed)
		db.MustExec("ALTER TABLE idempotent_log DROP COLUMN idem_generation")
		fs := check(t, l)
		require.Equal(t, []string{"log-column-missing"}, codes(fs))
		require.Contains(t, fs[0].What, "idem_generation")
	})
}

func TestDDL_WithAColumnPrefix_IsWhatMigrateRuns(t *testing.T) {
	text, err := sqlstore.DDL(sqlstore.SQLite, sqlstore.Config{ColumnPrefix: "idem_"})
	require.NoError(t, err)
	db := open(t, sqlite.url(t))
	db.MustExec(text)
	l := newLog(t, db, prefixed)
	require.Empty(t, check(t, l))
	require.Equal(t, dedupe.Claimed, claim(t, l, key(t, "a"), newOwner()).Verdict)
}
