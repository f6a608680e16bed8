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

// newPipeline is what the examples share: one process of the scope "inventory" on a log in memory.
func newPipeline(cfg consumer.Config) *consumer.Pipeline {
	guard, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: dedupe.Logged, Log: memstore.NewLog()})
	if err != nil {
		panic(err)
	}
	cfg.Guard, cfg.ID = guard, consumer.IDFromHeader("msg_id")
	pipe, err := consumer.NewPipeline(cfg)
	if err != nil {
		panic(err)
	}
	return pipe
}

func delivery(topic, id, body string) *consumer.Message {
	return &consumer.Message{
		Position: consumer.Position{Topic: topic, Offset: 1},
		Value:    []byte(body),
		Headers:  consumer.Headers{{Name: "msg_id", Value: []byte(id)}},
	}
}

// A loop of one's own: nil means acknowledge.
func ExamplePipeline_Settle() {
	tries := 0
	pipe := newPipeline(consumer.Config{
		Policy: consumer.Policy{Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Millisecond}}},
		Handler: func(context.Context, *consumer.Message) error {
			if tries++; tries < 3 {
				return errors.New("warehouse does not answer")
			}
			return nil
		},
	})
	err := pipe.Settle(context.Background(), delivery("orders", "o-1", ""), nil)
	fmt.Println(err, tries)
	// Output: <nil> 3
}

// Each message of a batch has its own end.
func ExampleBatchError() {
	letters := &letters{}
	pipe := newPipeline(consumer.Config{BatchHandler: func(_ context.Context, ms []*consumer.Message) error {
		errs := make([]error, len(ms))
		for i, m := range ms {
			if m.ID() == "o-2" {
				errs[i] = consumer.Permanent(errors.New("no such address"))
			}
		}
		return &consumer.BatchError{Errs: errs}
	}})
	batch := []*consumer.Message{delivery("mails", "o-1", ""), delivery("mails", "o-2", ""), delivery("mails", "o-3", "")}
	for _, d := range pipe.ProcessBatch(context.Background(), batch, letters) {
		fmt.Println(d.Action, d.Verdict, d.Err)
	}
	// Output:
	// ack claimed <nil>
	// ack dead no such address
	// ack claimed <nil>
}

// Middleware runs inside the claim: not for duplicates.
func ExampleMiddleware() {
	timed := func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, m *consumer.Message) error {
			fmt.Println("attempt", m.Claim().Attempt(), "of", m.ID())
			return next(ctx, m)
		}
	}
	pipe := newPipeline(consumer.Config{
		Handler:    func(context.Context, *consumer.Message) error { return nil },
		Middleware: []consumer.Middleware{timed},
	})
	for range 2 {
		pipe.Process(context.Background(), delivery("orders", "o-1", ""), nil)
	}
	// Output: attempt 1 of o-1
}

// One group, two kinds of messages.
func ExampleByTopic() {
	say := func(word string) consumer.Handler {
		return func(_ context.Context, m *consumer.Message) error {
			fmt.Println(word, m.ID())
			return nil
		}
	}
	pipe := newPipeline(consumer.Config{Handler: consumer.ByTopic(map[string]consumer.Handler{"orders": say("reserve"), "returns": say("take back")})})
	pipe.Process(context.Background(), delivery("orders", "7", ""), nil)
	pipe.Process(context.Background(), delivery("returns", "7", ""), nil) // the same id on another topic is another message
	// Output:
	// reserve 7
	// take back 7
}

// A producer that stamps each send: the stamp is not compared.
func ExampleFingerprintJSON() {
	pipe := newPipeline(consumer.Config{
		Handler:     func(context.Context, *consumer.Message) error { return nil },
		Fingerprint: consumer.FingerprintJSON("sku", "qty"),
	})
	for _, body := range []string{`{"sku":"tea","qty":1,"sent":"10:00"}`, `{"sku":"tea","qty":1,"sent":"10:05"}`, `{"sku":"tea","qty":9,"sent":"10:10"}`} {
		d := pipe.Process(context.Background(), delivery("orders", "o-1", body), &letters{})
		fmt.Println(d.Verdict)
	}
	// Output:
	// claimed
	// done
	// conflict
}

// counter is a hook: any value with one of the methods.
type counter map[string]int

func (c counter) OnDeadLetter(_ context.Context, d consumer.DeadLetter) { c[d.Reason]++ }

func ExampleHookDeadLetter() {
	dead := counter{}
	pipe := newPipeline(consumer.Config{
		Hooks:   []consumer.Hook{dead},
		Handler: consumer.JSON(func(context.Context, consumer.Decoded[shipment]) error { return nil }),
	})
	pipe.Process(context.Background(), delivery("shipments", "s-1", "{"), &letters{})
	fmt.Println(dead)
	// Output: map[undecodable:1]
}

// A dead letter carries who it was, in headers that survive every broker.
func ExampleParseLetter() {
	d := consumer.DeadLetter{
		Message: delivery("orders", "", "body"), ID: "o/1", Scope: "inventory", Namespace: "orders",
		Reason: consumer.ReasonExhausted, Error: "no stock", Attempts: 10, DiedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	stored := &consumer.Message{Value: d.Message.Value, Headers: consumer.LetterHeaders(d, true)}
	id, _ := stored.Headers.Get(consumer.HeaderID)
	read, err := consumer.ParseLetter(stored)
	fmt.Println(id, read.ID, read.Reason, read.Attempts, read.Message.Origin, err)
	// Output: o%2F1 o/1 exhausted 10 orders/0@1 <nil>
}

// An operator sends the letters of one reason again; what was applied meanwhile is skipped.
func ExampleRedrive() {
	queue := &letters{}
	empty := true
	pipe := newPipeline(consumer.Config{Handler: func(context.Context, *consumer.Message) error {
		if empty {
			return consumer.Permanent(errors.New("no stock"))
		}
		return nil
	}})
	pipe.Process(context.Background(), delivery("orders", "o-1", ""), queue)
	empty = false

	options := consumer.RedriveOptions{
		Select: func(d consumer.DeadLetter) bool { return d.Reason == consumer.ReasonPermanent },
		Audit:  dedupe.Audit{By: "ops", Reason: "stock corrected"},
	}
	rep, err := consumer.Redrive(context.Background(), pipe.Guard(), queue, options)
	fmt.Println(rep.Redriven, "sent again", err)
	d := pipe.Process(context.Background(), resent(queue.sent[0]), queue)
	fmt.Println(d.Action, d.Verdict)
	rep, err = consumer.Redrive(context.Background(), pipe.Guard(), queue, options)
	fmt.Println(rep.Skipped, "skipped", err)
	// Output:
	// 1 sent again <nil>
	// ack claimed
	// 1 skipped <nil>
}

// A health endpoint would answer 503 for this one.
func ExamplePhase() {
	state := struct{ Phase consumer.Phase }{consumer.PhaseHalted} // what State of an adapter returns
	switch state.Phase {
	case consumer.PhaseStopped, consumer.PhaseHalted:
		fmt.Println("not consuming:", state.Phase)
	default:
		fmt.Println("alive:", state.Phase)
	}
	// Output: not consuming: halted
}
