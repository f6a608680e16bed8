package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/dedupe/storetest"
)

// The reply to a completion is lost. Whoever asks again with the same owner learns that it happened.
func ExampleFaults() {
	lost := false
	faults := &storetest.Faults{Decide: func(_ context.Context, op string, _ dedupe.Key) storetest.Fault {
		if op == "complete" && !lost {
			lost = true
			return storetest.After
		}
		return storetest.None
	}}
	store := faults.Store(memstore.New())
	ctx := context.Background()
	key, err := dedupe.NewKey("inventory", "orders", "order-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	store.Claim(ctx, []dedupe.ClaimRequest{{Key: key, Owner: "me", Lease: time.Minute, Retention: time.Hour}})
	done := []dedupe.CompleteRequest{{Grip: dedupe.Grip{Key: key, Owner: "me"}, Retention: time.Hour}}
	reply := store.Complete(ctx, done)[0]
	fmt.Println(errors.Is(reply.Err, dedupe.ErrOutcomeUnknown))
	reply = store.Complete(ctx, done)[0]
	fmt.Println(reply.Verdict, reply.Record.State, reply.Err)
	// Output:
	// true
	// claimed done <nil>
}

// A claim that timed out is executed by the server later, when nobody waits for it any more.
func ExampleFaults_ExecuteLate() {
	faults := &storetest.Faults{Decide: func(context.Context, string, dedupe.Key) storetest.Fault { return storetest.Late }}
	server := memstore.New()
	ctx := context.Background()
	key, err := dedupe.NewKey("inventory", "orders", "order-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	claim := func(s dedupe.Store, o dedupe.Owner) dedupe.Verdict {
		return s.Claim(ctx, []dedupe.ClaimRequest{{Key: key, Owner: o, Lease: time.Minute, Retention: time.Hour}})[0].Verdict
	}
	fmt.Println(claim(faults.Store(server), "gone"))
	fmt.Println(faults.ExecuteLate(ctx), "executed late")
	fmt.Println(claim(server, "next"))
	// Output:
	// unknown
	// 1 executed late
	// busy
}
