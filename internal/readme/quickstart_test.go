package readme_test

import (
	"context"
	"fmt"

	"github.com/idemq/idemq/adapters/memory"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// README: quick start

func Example_quickStart() {
	ctx, stop := context.WithCancel(context.Background())
	guard, _ := dedupe.New(dedupe.Config{Scope: "shop", Mode: dedupe.Logged, Log: memstore.NewLog()})
	pipe, _ := consumer.NewPipeline(consumer.Config{
		Guard:   guard,
		ID:      consumer.IDFromHeader("msg_id"),
		Handler: func(_ context.Context, m *consumer.Message) error { fmt.Println("applied", m.ID()); return nil },
	})
	broker, order := memory.NewBroker(), memory.NewMessage("order-1", `{"sku":"tea"}`)
	broker.Publish(ctx, "orders", order, order, order)
	go func() { broker.WaitSettled(ctx, "shop", "orders"); stop() }()
	err := memory.Run(ctx, memory.Config{Broker: broker, Topics: []string{"orders"}}, pipe)
	fmt.Println(err)
	// Output:
	// applied order-1
	// <nil>
}

// README: end
