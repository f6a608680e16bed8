package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jmoiron/sqlx"

	"github.com/idemq/idemq/consumer"
)

// Order is the body of a message: so many pieces of an article leave the warehouse.
type Order struct {
	SKU      string `json:"sku"`
	Quantity int64  `json:"quantity"`
}

// idHeader is the header in which producers put the business id: the same each time an order is sent.
const idHeader = "msg_id"

// Reasons for which an order is refused for good: the next attempt would find the same.
var (
	errOutOfStock = errors.New("not enough in stock")
	errQuantity   = errors.New("quantity is not positive")
)

// decrement is the handler: business code only. In transactional mode tx has the message's row of idempotent_log in it before
// this is called, so both take effect together or not at all.
func decrement(ctx context.Context, tx *sqlx.Tx, m consumer.Decoded[Order]) error {
	err := take(ctx, tx, m.ID(), m.Body)
	if errors.Is(err, errOutOfStock) || errors.Is(err, errQuantity) {
		return consumer.Permanent(err)
	}
	return err
}

// take moves the ordered pieces out of the stock, which never goes below zero, and writes the movement down.
func take(ctx context.Context, tx *sqlx.Tx, id string, o Order) error {
	if o.Quantity <= 0 {
		return fmt.Errorf("order of %d: %w", o.Quantity, errQuantity)
	}
	res, err := tx.ExecContext(ctx, tx.Rebind(sqlTake), o.Quantity, o.SKU, o.Quantity)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		return errOutOfStock
	}
	_, err = tx.ExecContext(ctx, tx.Rebind(sqlMove), id, o.SKU, -o.Quantity)
	return err
}
