package memstore_test

import (
	"context"
	"errors"
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

// A server that comes back empty: what a process did not ask to be told about is new again, and what it asked for is refused.
func ExampleStore_Flush() {
	ctx := context.Background()
	store := memstore.New()
	key, err := dedupe.NewKey("inventory", "orders", "order-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	claim := func(o dedupe.Owner) {
		reply := store.Claim(ctx, []dedupe.ClaimRequest{{Key: key, Owner: o, Lease: time.Minute, Retention: time.Hour}})[0]
		fmt.Println(reply.Verdict, errors.Is(reply.Err, dedupe.ErrMemoryLost))
	}
	remember := func() {
		lost, err := store.Remember(ctx, "inventory")
		fmt.Println("lost:", lost, err)
	}
	remember()
	claim("first")
	store.Flush()
	claim("second")
	remember() // accepts the loss
	claim("second")
	// Output:
	// lost: false <nil>
	// claimed false
	// unknown true
	// lost: false <nil>
	// claimed false
}

// A transaction sees its own changes; others see them once it is committed, and one that read what has changed since is refused.
func ExampleTx() {
	log := memstore.NewLog()
	first, second := log.Begin(), log.Begin()
	for _, tx := range []*memstore.Tx{first, second} {
		stock, _ := tx.Get("stock/apple").(int)
		tx.Set("stock/apple", stock-1)
	}
	fmt.Println(first.Get("stock/apple"), log.Value("stock/apple"))
	fmt.Println(first.Commit())
	fmt.Println(second.Commit())
	fmt.Println(log.Value("stock/apple"))
	// Output:
	// -1 <nil>
	// <nil>
	// memstore: commit: another transaction was first: store unavailable
	// -1
}

// A backup is restored: what happened since is gone, rows and effects alike. Restored says so to everyone who remembers the log.
func ExampleLog_RestoreFrom() {
	ctx := context.Background()
	log := memstore.NewLog()
	backup := log.Snapshot()
	tx := log.Begin()
	tx.Set("stock/apple", 7)
	fmt.Println(tx.Commit(), log.Value("stock/apple"))
	before, err := log.Incarnation(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	log.RestoreFrom(backup)
	after, err := log.Restored(ctx, dedupe.Audit{By: "mira", Reason: "disk failure"})
	fmt.Println(log.Value("stock/apple"), before == after, err)
	// Output:
	// <nil> 7
	// <nil> false <nil>
}
