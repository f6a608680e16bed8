package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// A handler's own test, with no database: the effect and the message's row commit together.
func ExampleLog() {
	ctx := context.Background()
	log := memstore.NewLog()
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Transactional, Log: log})
	if err != nil {
		fmt.Println(err)
		return
	}
	decrement := func(ctx context.Context, _ *dedupe.Claim) error {
		return log.InTx(ctx, func(tx *memstore.Tx) error {
			stock, _ := tx.Get("stock/apple").(int)
			tx.Set("stock/apple", stock-1)
			return nil
		})
	}
	order := dedupe.Delivery{ID: "order-1", Namespace: "orders", Fingerprint: dedupe.FingerprintOf([]byte(`{"sku":"apple"}`))}
	for range 3 { // the broker delivers three times
		out, err := guard.Do(ctx, order, decrement)
		fmt.Println(out.Verdict, err)
	}
	fmt.Println("stock", log.Value("stock/apple"))
	fmt.Println("closed", guard.Close(ctx))
	// Output:
	// claimed <nil>
	// done <nil>
	// done <nil>
	// stock -1
	// closed <nil>
}

// A clock that the test moves: a lease of a minute ends at once.
func ExampleNewWithClock() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := memstore.NewWithClock(func() time.Time { return now })
	key, err := dedupe.NewKey("inventory", "orders", "order-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	claim := func(o dedupe.Owner) {
		reply := store.Claim(context.Background(), []dedupe.ClaimRequest{{Key: key, Owner: o, Lease: time.Minute, Retention: time.Hour}})[0]
		fmt.Printf("%s: %v, held by %s, %d deaths\n", o, reply.Verdict, reply.Record.Owner, reply.Record.Deaths)
	}
	claim("first")
	claim("second")
	now = now.Add(time.Minute)
	claim("second")
	// Output:
	// first: claimed, held by first, 0 deaths
	// second: busy, held by first, 0 deaths
	// second: claimed, held by second, 1 deaths
}
