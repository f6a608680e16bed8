package rocketmq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/idemq/idemq/adapters/rocketmq"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func examplePipeline() *consumer.Pipeline {
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Logged, Log: memstore.NewLog()})
	if err != nil {
		log.Fatal(err)
	}
	pipe, err := consumer.NewPipeline(consumer.Config{
		Guard: guard,
		ID:    consumer.IDFromHeader(rocketmq.HeaderMessageID),
		Handler: func(_ context.Context, m *consumer.Message) error {
			fmt.Println(m.ID(), string(m.Value))
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	return pipe
}

// A consumer is a pipeline and where its messages are. This needs a RocketMQ, so it is compiled only.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg := rocketmq.Config{NameServers: []string{"127.0.0.1:9876"}, Topics: []string{"orders"}}
	if err := rocketmq.Run(ctx, cfg, examplePipeline()); err != nil {
		log.Fatal(err)
	}
}

// A consumer in a service: its state and lag for a health endpoint, its end by a context.
func ExampleConsumer() {
	c, err := rocketmq.NewConsumer(rocketmq.Config{NameServers: []string{"127.0.0.1:1"}, Topics: []string{"orders"}}, examplePipeline())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.State().Phase, c.Lag())
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println(c.Run(ctx) != nil, c.State().Phase) // nobody is at that address
	// Output:
	// idle map[]
	// true halted
}

// Dead letters can be looked at and sent again. This needs a RocketMQ, so it is compiled only.
func ExampleDeadLetterQueue() {
	q, err := rocketmq.OpenDeadLetters(rocketmq.Config{NameServers: []string{"127.0.0.1:9876"}}, "%DLQ%inventory")
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	for d, err := range q.List(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.ID, d.Message.Origin, d.Reason, d.Attempts, d.Error)
	}
}

// Wrong settings are listed, all of them, before anything is asked.
func ExampleConfig() {
	_, err := rocketmq.OpenDeadLetters(rocketmq.Config{NameServers: []string{"localhost"}}, "my letters")
	fmt.Println(err)
	// Output:
	// rocketmq: Config.NameServers: [0]: "localhost" is not host:port, such as "127.0.0.1:9876"
	// rocketmq: Config.topic of OpenDeadLetters: "my letters" is not a topic name; use 1 to 127 letters, digits, underscores, hyphens, % and |
}

// A loop of one's own settles messages by the same policy.
func ExampleFromRocketMQ() {
	raw := &primitive.MessageExt{QueueOffset: 7}
	raw.Topic, raw.Body = "orders", []byte(`{"quantity":2}`)
	raw.Queue = &primitive.MessageQueue{QueueId: 1}
	rocketmq.WithID(&raw.Message, "order-4711")
	pipe := examplePipeline()
	for range 2 { // a redelivery
		if err := pipe.Settle(context.Background(), rocketmq.FromRocketMQ(raw), nil); err != nil && !errors.Is(err, context.Canceled) {
			log.Fatal(err)
		}
	}
	fmt.Println(rocketmq.FromRocketMQ(raw).Position)
	// Output:
	// order-4711 {"quantity":2}
	// orders/1@7
}

func ExampleWithID() {
	m := rocketmq.WithID(primitive.NewMessage("orders", []byte("v")), "order-4711")
	fmt.Println(m.GetProperty(rocketmq.HeaderMessageID), m.GetKeys())
	// Output: order-4711 order-4711
}

func ExampleIDFromKeys() {
	m := &consumer.Message{Headers: consumer.Headers{{Name: "KEYS", Value: []byte("order-4711 order-4712")}}}
	_, err := rocketmq.IDFromKeys()(m)
	fmt.Println(err)
	// Output: rocketmq: message has 2 KEYS: which is its id cannot be known
}

func ExampleParseLevels() {
	levels, err := rocketmq.ParseLevels("1s 5s 10s 30s 1m")
	fmt.Println(levels, err)
	// Output: [1s 5s 10s 30s 1m0s] <nil>
}

func ExampleParseStart() {
	s, err := rocketmq.ParseStart("latest")
	fmt.Println(s, err)
	// Output: latest <nil>
}

func ExamplePhase() {
	fmt.Println(rocketmq.Starting, rocketmq.Running, rocketmq.Paused, rocketmq.Draining)
	// Output: starting running paused draining
}

func ExampleQueue() {
	fmt.Println(rocketmq.Queue{Topic: "orders", Broker: "broker-a", ID: 3})
	// Output: orders/broker-a/3
}
