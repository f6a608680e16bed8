// Command quickstart sends a message three times and applies it once, with a broker and a store in memory.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/idemq/idemq/adapters/memory"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func apply(_ context.Context, m *consumer.Message) error {
	fmt.Println("applied", m.ID())
	return nil
}

func main() {
	ctx, stop := context.WithCancel(context.Background())
	guard, err := dedupe.New(dedupe.Config{Scope: "shop", Mode: dedupe.Logged, Log: memstore.NewLog()})
	if err != nil {
		log.Fatal(err)
	}
	pipe, err := consumer.NewPipeline(consumer.Config{Guard: guard, ID: consumer.IDFromHeader("msg_id"), Handler: apply})
	if err != nil {
		log.Fatal(err)
	}
	broker, order := memory.NewBroker(), memory.NewMessage("order-1", `{"sku":"tea"}`)
	broker.Publish(ctx, "orders", order, order, order)
	go func() { broker.WaitSettled(ctx, "shop", "orders"); stop() }()
	if err := memory.Run(ctx, memory.Config{Broker: broker, Topics: []string{"orders"}}, pipe); err != nil {
		log.Fatal(err)
	}
}
