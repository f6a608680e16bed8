package memory_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/idemq/idemq/adapters/memory"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// An order is sent three times and takes effect once.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	log := memstore.NewLog()
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Transactional, Log: log})
	if err != nil {
		panic(err)
	}
	decrement := func(_ context.Context, tx *memstore.Tx, m *consumer.Message) error {
		stock, _ := tx.Get("tea").(int)
		tx.Set("tea", stock-1)
		return nil
	}
	pipe, err := consumer.NewPipeline(consumer.Config{Guard: guard, ID: consumer.IDFromHeader("msg_id"), Handler: memstore.Transactional(log, decrement)})
	if err != nil {
		panic(err)
	}

	broker := memory.NewBroker()
	order := memory.NewMessage("order-1", `{"sku":"tea"}`)
	broker.Publish(ctx, "orders", order, order, order)
	go func() {
		defer stop()
		broker.WaitSettled(ctx, "inventory", "orders")
	}()
	err = memory.Run(ctx, memory.Config{Broker: broker, Topics: []string{"orders"}}, pipe)
	fmt.Println(log.Value("tea"), err)
	// Output: -1 <nil>
}

// A test of a policy: the broker's messages are what a consumer left behind.
func ExampleBroker() {
	ctx := context.Background()
	broker := memory.NewBroker()
	positions, err := broker.Publish(ctx, "orders", memory.NewMessage("order-1", "a"), memory.NewMessage("order-2", "b"))
	fmt.Println(positions, err)
	for _, m := range broker.Messages("orders") {
		fmt.Println(m.Position, string(m.Value))
	}
	fmt.Println("lag", broker.Lag("inventory", "orders"))
	// Output:
	// [orders/0@0 orders/1@0] <nil>
	// orders/0@0 a
	// orders/1@0 b
	// lag 2
}

// Two members share the partitions; one stops, the other takes over.
func ExampleConsumer() {
	broker, log := memory.NewBroker(), memstore.NewLog()
	member := func() (*memory.Consumer, func() error) {
		guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Logged, Log: log})
		if err != nil {
			panic(err)
		}
		pipe, err := consumer.NewPipeline(consumer.Config{
			Guard: guard, ID: consumer.IDFromHeader("msg_id"),
			Handler: func(context.Context, *consumer.Message) error { return nil },
		})
		if err != nil {
			panic(err)
		}
		c, err := memory.NewConsumer(memory.Config{Broker: broker, Topics: []string{"orders"}}, pipe)
		if err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		return c, func() error { cancel(); return <-ended }
	}
	ctx := context.Background()
	_, stopA := member()
	_, stopB := member()
	broker.Publish(ctx, "orders", memory.NewMessage("order-1", ""))
	fmt.Println(stopA())
	broker.Publish(ctx, "orders", memory.NewMessage("order-2", ""))
	fmt.Println(broker.WaitSettled(ctx, "inventory", "orders"))
	fmt.Println(stopB())
	// Output:
	// <nil>
	// <nil>
	// <nil>
}

// What died is listed with its reason.
func ExampleDeadLetterQueue() {
	ctx, stop := context.WithCancel(context.Background())
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Logged, Log: memstore.NewLog()})
	if err != nil {
		panic(err)
	}
	pipe, err := consumer.NewPipeline(consumer.Config{
		Guard: guard, ID: consumer.IDFromHeader("msg_id"),
		Handler: func(context.Context, *consumer.Message) error { return consumer.Permanent(errors.New("no such sku")) },
	})
	if err != nil {
		panic(err)
	}
	broker := memory.NewBroker()
	broker.Publish(ctx, "orders", memory.NewMessage("order-1", ""))
	go func() {
		defer stop()
		broker.WaitSettled(ctx, "inventory", "orders")
	}()
	if err := memory.Run(ctx, memory.Config{Broker: broker, Topics: []string{"orders"}}, pipe); err != nil {
		panic(err)
	}
	for d, err := range memory.OpenDeadLetters(broker, memory.DeadLetterTopic("inventory")).List(context.Background()) {
		fmt.Println(d.ID, d.Reason, d.Error, err)
	}
	// Output: order-1 permanent no such sku <nil>
}
