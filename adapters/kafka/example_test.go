package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// exampleBroker is a broker in this process. Yours is real.
func exampleBroker(messages ...kafkago.Message) (brokers []string, stop func()) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		log.Fatal(err)
	}
	transport := &kafkago.Transport{MetadataTopics: []string{"orders"}}
	w := &kafkago.Writer{Addr: kafkago.TCP(c.ListenAddrs()...), Topic: "orders", RequiredAcks: kafkago.RequireAll, BatchTimeout: 1, Transport: transport}
	if err := errors.Join(w.WriteMessages(context.Background(), messages...), w.Close()); err != nil {
		log.Fatal(err)
	}
	transport.CloseIdleConnections()
	return c.ListenAddrs(), c.Close
}

// A producer sends the same order twice; it takes effect once.
func Example() {
	order := kafka.WithID(&kafkago.Message{Key: []byte("sku-1"), Value: []byte(`{"sku":"sku-1","quantity":2}`)}, "order-4711")
	brokers, stop := exampleBroker(*order, *order, *kafka.WithID(&kafkago.Message{Value: []byte("the last")}, "order-4712"))
	defer stop()

	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Logged, Log: memstore.NewLog()})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	pipe, err := consumer.NewPipeline(consumer.Config{
		Guard:  guard,
		ID:     consumer.IDFromHeader(kafka.HeaderMessageID),
		Policy: consumer.Policy{Concurrency: 1},
		Handler: func(_ context.Context, m *consumer.Message) error {
			fmt.Println(m.ID(), string(m.Value))
			if m.ID() == "order-4712" {
				cancel()
			}
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := kafka.Run(ctx, kafka.Config{Brokers: brokers, Topics: []string{"orders"}}, pipe); err != nil {
		log.Fatal(err)
	}
	// Output:
	// order-4711 {"sku":"sku-1","quantity":2}
	// order-4712 the last
}

// A consumer in a service: its state and lag for a health endpoint, its end by a context.
func ExampleConsumer() {
	brokers, stop := exampleBroker(*kafka.WithID(&kafkago.Message{Value: []byte("v")}, "id-1"))
	defer stop()
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Logged, Log: memstore.NewLog()})
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	pipe, err := consumer.NewPipeline(consumer.Config{
		Guard: guard, ID: consumer.IDFromHeader(kafka.HeaderMessageID),
		Handler: func(context.Context, *consumer.Message) error { close(done); return nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	c, err := kafka.NewConsumer(kafka.Config{Brokers: brokers, Topics: []string{"orders"}}, pipe)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	<-done
	fmt.Println(c.State().Phase, c.State().Assigned)
	cancel()
	fmt.Println(<-ended)
	fmt.Println(c.State().Phase)
	// Output:
	// running [{orders 0}]
	// <nil>
	// stopped
}

// Dead letters can be looked at and sent again.
func ExampleDeadLetterQueue() {
	brokers, stop := exampleBroker()
	defer stop()
	q, err := kafka.OpenDeadLetters(kafka.Config{Brokers: brokers}, "orders") // yours is "<group>.dlq"
	if err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	ctx := context.Background()
	m := kafka.FromKafka(kafkago.Message{Topic: "orders", Offset: 7, Value: []byte("v")})
	if err := q.Publish(ctx, consumer.DeadLetter{Message: m, ID: "id-1", Scope: "inventory", Reason: consumer.ReasonExhausted, Error: "no stock", Attempts: 10}); err != nil {
		log.Fatal(err)
	}
	for d, err := range q.List(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.ID, d.Message.Origin, d.Reason, d.Attempts, d.Error)
	}
	// Output:
	// id-1 orders/0@7 exhausted 10 no stock
}

// Wrong settings are listed, all of them, before anything is asked.
func ExampleConfig() {
	_, err := kafka.OpenDeadLetters(kafka.Config{Brokers: []string{"localhost"}}, "my letters")
	fmt.Println(err)
	// Output:
	// kafka: Config.Brokers: [0]: "localhost" is not host:port, such as "127.0.0.1:9092"
	// kafka: Config.topic of OpenDeadLetters: "my letters" is not a topic name; use 1 to 249 letters, digits, dots, underscores and hyphens
}

func ExampleParseStart() {
	s, err := kafka.ParseStart("latest")
	fmt.Println(s, err)
	// Output: latest <nil>
}

func ExampleWithID() {
	m := kafka.WithID(&kafkago.Message{Value: []byte("v")}, "order-4711")
	fmt.Printf("%s: %s\n", m.Headers[0].Key, m.Headers[0].Value)
	// Output: msg_id: order-4711
}
