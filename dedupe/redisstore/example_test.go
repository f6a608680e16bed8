package redisstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
)

func ExampleNew() {
	server, err := miniredis.Run() // yours is a real one
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb, err := redisstore.NewClient("redis://" + server.Addr())
	if err != nil {
		panic(err)
	}
	defer rdb.Close()

	guard, err := dedupe.New(dedupe.Config{
		Scope: "inventory",
		Mode:  dedupe.RedisOnly, // or another mode, with a Log
		Store: redisstore.New(rdb, redisstore.Config{}),
	})
	if err != nil {
		panic(err)
	}
	order := dedupe.Delivery{ID: "order-42", Namespace: "orders", Fingerprint: dedupe.FingerprintOf([]byte("2 apples"))}
	for range 3 {
		out, err := guard.Do(context.Background(), order, func(context.Context, *dedupe.Claim) error {
			fmt.Println("2 apples sold")
			return nil
		})
		fmt.Println(out.Verdict, err)
	}
	// Output:
	// 2 apples sold
	// claimed <nil>
	// done <nil>
	// done <nil>
}

func ExampleConfig() {
	rdb, err := redisstore.NewClient("redis+cluster://10.0.0.1:6379,10.0.0.2:6379,10.0.0.3:6379")
	if err != nil {
		panic(err)
	}
	defer rdb.Close()
	s := redisstore.New(rdb, redisstore.Config{
		Prefix:  "shop",
		Shards:  64,                     // of each scope, over the masters; never changed afterwards
		Timeout: 100 * time.Millisecond, // a third of the lease at most
		Breaker: redisstore.Breaker{Failures: 5, Probe: time.Second},
	})
	fmt.Println(s.Validate())
	// Output: <nil>
}

func ExampleBreaker() {
	s := redisstore.New(nil, redisstore.Config{Breaker: redisstore.Breaker{Failures: -1}})
	fmt.Println(s.Validate())
	// Output:
	// redisstore: Config.Breaker.Failures: -1: from 1 to 1000000
	// redisstore: New: client is nil; make one with NewClient(url)
}

func ExampleStore_Claim() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb, err := redisstore.NewClient("redis://" + server.Addr())
	if err != nil {
		panic(err)
	}
	defer rdb.Close()
	s := redisstore.New(rdb, redisstore.Config{})

	k, err := dedupe.NewKey("inventory", "orders", "order-42")
	if err != nil {
		panic(err)
	}
	for _, owner := range []dedupe.Owner{"first", "second", "first"} {
		r := s.Claim(context.Background(), []dedupe.ClaimRequest{{
			Key: k, Owner: owner, Fingerprint: dedupe.NoFingerprint, Lease: 12 * time.Second, Retention: time.Hour,
		}})[0]
		fmt.Println(owner, r.Verdict, r.Err)
	}
	// Output:
	// first claimed <nil>
	// second busy <nil>
	// first claimed <nil>
}
