package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

type shipment struct {
	SKU string `json:"sku"`
	Qty int    `json:"qty"`
}

// A pipeline on a log in memory: the second delivery of a message is a known duplicate.
func ExamplePipeline_Process() {
	log := memstore.NewLog()
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Logged, Log: log})
	if err != nil {
		panic(err)
	}
	pipe, err := consumer.NewPipeline(consumer.Config{
		Guard: guard,
		ID:    consumer.IDFromHeader("msg_id"),
		Handler: consumer.JSON(func(_ context.Context, m consumer.Decoded[shipment]) error {
			fmt.Println("ship", m.Body.Qty, m.Body.SKU)
			return nil
		}),
	})
	if err != nil {
		panic(err)
	}
	m := &consumer.Message{
		Position: consumer.Position{Topic: "shipments", Offset: 1},
		Value:    []byte(`{"sku":"tea","qty":2}`),
		Headers:  consumer.Headers{{Name: "msg_id", Value: []byte("s-1")}},
	}
	for range 2 {
		d := pipe.Process(context.Background(), m, nil)
		fmt.Println(d.Action, d.Verdict)
	}
	// Output:
	// ship 2 tea
	// ack claimed
	// ack done
}

// Two parts of the body make the id; the sku alone would take two orders for one.
func ExampleIDFromParts() {
	id := consumer.IDFromParts("order-line", consumer.IDFromJSON("order"), consumer.IDFromJSON("line"))
	fmt.Println(id(&consumer.Message{Value: []byte(`{"order":9007199254740993,"line":1}`)}))
	// Output: 10:order-line16:90071992547409931:1 <nil>
}

// The policy says in one line what it does.
func ExamplePolicy() {
	p := consumer.Policy{
		Order: consumer.OrderNone,
		Retry: consumer.Retry{Attempts: 5, Tiers: []time.Duration{5 * time.Second, time.Minute}},
	}
	fmt.Println(p)
	p.Order = consumer.OrderKey
	for _, problem := range p.Validate() {
		fmt.Println(problem.Field, problem.Wrong)
	}
	// Output:
	// handler_timeout 30s, concurrency 16, drain_timeout 20s, order none, after_letter go_on, on_halt stop, on_conflict dead_letter, on_missing_id dead_letter, store_outage wait, attempts 5 (3 in place, after 200ms times 2 up to 30s, jitter 0.2), tiers [5s 1m0s], permanent [], busy wait 5s, dead letters topic <group>.dlq
	// retry.tiers break the order of keys: a waiting message is overtaken
}

// A handler says what no retry can mend.
func ExamplePermanent() {
	err := consumer.Permanent(errors.New("stock would go below zero"))
	fmt.Println(consumer.IsPermanent(err), err)
	// Output: true stock would go below zero
}
