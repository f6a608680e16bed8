package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/idemq/idemq/dedupe/sqlstore"
)

// judge compares stock and movements of both consumers with what was ordered.
func (d *demo) judge(ctx context.Context) (ours, naive report, err error) {
	p, err := d.ours.open(nil)
	if err != nil {
		return ours, naive, err
	}
	defer p.close()
	guarantee, err := p.promise(ctx)
	if err != nil {
		return ours, naive, err
	}
	l, err := d.ours.readLedger(ctx)
	if err != nil {
		return ours, naive, err
	}
	b, err := readBooks(ctx, p.db)
	if err != nil {
		return ours, naive, err
	}
	naiveBooks, err := d.naiveBooks(ctx)
	if err != nil {
		return ours, naive, err
	}
	ours, naive = tally(l, b), tally(l, naiveBooks)
	ours.Deliveries = int(d.count.settled.Load())
	ours.Duplicates = ours.Deliveries - ours.Applied - ours.Dead
	ours.NaiveTwice = naive.Twice
	ours.Guarantee = guarantee
	ours.Seconds = time.Since(d.start).Seconds()
	return ours, naive, nil
}

func (d *demo) naiveBooks(ctx context.Context) (books, error) {
	db, err := sqlstore.Open(d.naively.DB)
	if err != nil {
		return books{}, err
	}
	b, err := readBooks(ctx, db)
	return b, errors.Join(err, db.Close())
}

// writeSummary says in a few lines what happened.
func (d *demo) writeSummary(w io.Writer, r, naive report) error {
	n := func(i int) string { return grouped(int64(i)) }
	_, err := fmt.Fprintf(w, `
%s orders were placed, and %s deliveries arrived: the producer sent some orders twice, a
worker was killed, partitions moved, Redis was wiped, and in the end everything was delivered
once more while Redis was dead.

                              with idemq         naive
orders applied            %14s%14s
applied too often         %14s%14s
refused as sold out       %14s%14s
lost                      %14s
pieces left in stock      %14s%14s
  and as the orders say   %14s%14s   (each by the orders that it applied)

The naive consumer had applied %s orders too often before everything came once more.
Guarantee: %s
`,
		n(r.Orders), n(r.Deliveries),
		n(r.Applied), n(naive.Applied),
		n(r.Twice), n(naive.Twice),
		n(r.Dead), n(naive.Orders-naive.Applied),
		n(r.Lost),
		grouped(r.StockActual), grouped(naive.StockActual),
		grouped(r.StockExpected), grouped(naive.StockExpected),
		n(d.naiveBeforehand), inDays(r.Guarantee))
	if err != nil {
		return err
	}
	if r.Lost == 0 && r.Twice == 0 {
		_, err = fmt.Fprintf(w, "\nWith idemq nothing was lost and nothing was applied twice. (%.0f s)\n", r.Seconds)
	}
	return err
}
