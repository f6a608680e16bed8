package main

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/jmoiron/sqlx"
)

// The statements are the same on PostgreSQL, MySQL, MariaDB and SQLite; Rebind writes their parameters as the driver wants them.
var (
	//go:embed sql/create_stock.sql
	sqlCreateStock string
	//go:embed sql/create_stock_movement.sql
	sqlCreateStockMovement string
	//go:embed sql/fill.sql
	sqlFill string
	//go:embed sql/take.sql
	sqlTake string
	//go:embed sql/move.sql
	sqlMove string
	//go:embed sql/stock.sql
	sqlStock string
	//go:embed sql/movements.sql
	sqlMovements string
)

// inTx runs fn in a transaction of its own.
func inTx(ctx context.Context, db *sqlx.DB, fn func(tx *sqlx.Tx) error) error {
	tx, err := db.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		tx.Rollback() //nolint:errcheck // err is what happened; a transaction that cannot be rolled back is gone with its connection
		return err
	}
	return tx.Commit()
}

// refill makes the tables where they are missing, forgets all movements and puts opening pieces of each article on the shelf.
func refill(ctx context.Context, db *sqlx.DB, opening map[string]int64) error {
	for _, create := range []string{sqlCreateStock, sqlCreateStockMovement} {
		if _, err := db.ExecContext(ctx, create); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
	}
	return inTx(ctx, db, func(tx *sqlx.Tx) error {
		for _, table := range []string{"stock_movement", "stock"} {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table); err != nil {
				return fmt.Errorf("empty %s: %w", table, err)
			}
		}
		for sku, n := range opening {
			if _, err := tx.ExecContext(ctx, tx.Rebind(sqlFill), sku, n, n); err != nil {
				return fmt.Errorf("fill stock: %w", err)
			}
		}
		return nil
	})
}

// shelf is one row of stock.
type shelf struct {
	SKU      string `db:"sku"`
	Quantity int64  `db:"quantity"`
	Opening  int64  `db:"opening"`
}

// movement is one row of stock_movement.
type movement struct {
	MsgID string `db:"msg_id"`
	SKU   string `db:"sku"`
	Delta int64  `db:"delta"`
}

// books are the two tables as one snapshot saw them.
type books struct {
	stock     []shelf
	movements []movement
}

// times is how often each message took effect.
func (b books) times() map[string]int {
	times := map[string]int{}
	for _, m := range b.movements {
		times[m.MsgID]++
	}
	return times
}

// doubles is how many movements there are too many.
func (b books) doubles() int { return len(b.movements) - len(b.times()) }

// readBooks reads both tables. Their sums agree only when nobody writes meanwhile; check says so when messages are pending.
func readBooks(ctx context.Context, db *sqlx.DB) (books, error) {
	var b books
	if err := db.SelectContext(ctx, &b.stock, sqlStock); err != nil {
		return b, fmt.Errorf("read stock: %w; run reset first", err)
	}
	if err := db.SelectContext(ctx, &b.movements, sqlMovements); err != nil {
		return b, fmt.Errorf("read stock_movement: %w; run reset first", err)
	}
	return b, nil
}
