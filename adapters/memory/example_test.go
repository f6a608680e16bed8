package memory_test

import (
	"context"
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
