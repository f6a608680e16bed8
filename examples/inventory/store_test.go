package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe/sqlstore"
)

func sqliteStock(t *testing.T, opening map[string]int64) *sqlx.DB {
	t.Helper()
	db, err := sqlstore.Open("sqlite:" + filepath.Join(t.TempDir(), "stock.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, refill(t.Context(), db, opening))
	return db
}

func takeOne(ctx context.Context, db *sqlx.DB, id string, o Order) error {
	return inTx(ctx, db, func(tx *sqlx.Tx) error { return take(ctx, tx, id, o) })
}

func testStock(t *testing.T, db *sqlx.DB) {
	ctx := t.Context()
	require.NoError(t, refill(ctx, db, map[string]int64{"A": 5, "B": 9}))
	require.NoError(t, takeOne(ctx, db, "1", Order{"A", 3}))
	require.NoError(t, takeOne(ctx, db, "1", Order{"A", 1}), "no key on msg_id: a double must show")
	require.NoError(t, takeOne(ctx, db, "Order-é ", Order{"B", 1}))
	require.ErrorIs(t, takeOne(ctx, db, "2", Order{"A", 2}), errOutOfStock)
	require.ErrorIs(t, takeOne(ctx, db, "3", Order{"C", 1}), errOutOfStock)
	require.ErrorIs(t, takeOne(ctx, db, "4", Order{"A", -1}), errQuantity)

	b, err := readBooks(ctx, db)
	require.NoError(t, err)
	require.Equal(t, []shelf{{"A", 1, 5}, {"B", 8, 9}}, b.stock)
	require.ElementsMatch(t, []movement{{"1", "A", -3}, {"1", "A", -1}, {"Order-é ", "B", -1}}, b.movements)

	require.NoError(t, refill(ctx, db, map[string]int64{"A": 2}))
	b, err = readBooks(ctx, db)
	require.NoError(t, err)
	require.Equal(t, books{stock: []shelf{{"A", 2, 2}}}, b)
}

func TestStock_OnSQLite_NeverGoesBelowZeroAndKeepsEachMovement(t *testing.T) {
	testStock(t, sqliteStock(t, nil))
}

func TestReadBooks_WithoutTables_SaysWhatToRun(t *testing.T) {
	db, err := sqlstore.Open("sqlite:" + filepath.Join(t.TempDir(), "empty.db"))
	require.NoError(t, err)
	defer db.Close() //nolint:errcheck // nothing was written
	_, err = readBooks(t.Context(), db)
	require.ErrorContains(t, err, "run reset first")
}
