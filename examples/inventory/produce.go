package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
)

// traffic is what produce sends: the same settings always give the same messages in the same order.
type traffic struct {
	Orders     int     `default:"1000" help:"How many orders are placed."`
	Duplicates float64 `default:"0.3" help:"Share of the orders that is sent twice, 0 to 1."`
	SKUs       int     `name:"skus" default:"20" help:"How many articles are ordered."`
	Seed       uint64  `default:"1" help:"Another seed gives other orders with other ids; the same one sends the same orders again."`
}

func (t traffic) validate() []error {
	var bad []error
	if t.Orders < 1 {
		bad = append(bad, fmt.Errorf("--orders %d: at least 1", t.Orders))
	}
	if !(t.Duplicates >= 0 && t.Duplicates <= 1) {
		bad = append(bad, fmt.Errorf("--duplicates %v: a share from 0 to 1, such as 0.3", t.Duplicates))
	}
	if t.SKUs < 1 {
		bad = append(bad, fmt.Errorf("--skus %d: at least 1", t.SKUs))
	}
	return bad
}

// sku names article i, counted from 1.
func sku(i int) string { return fmt.Sprintf("SKU-%03d", i) }

// duplicateWithin is how many orders later a second copy is sent at most.
const duplicateWithin = 200

// messages are the orders, with the second copies among them. An order travels by its article, so that the orders of one article
// keep their sequence. A second copy is what another instance of the producer sends after a failure: same id, same body, but
// without that key, so that it may reach any worker at any time.
func (t traffic) messages() []kafka.Message {
	rnd := rand.New(rand.NewPCG(t.Seed, uint64(t.Orders)))
	type placed struct {
		at  int
		msg kafka.Message
	}
	var all []placed
	for i := range t.Orders {
		o := Order{SKU: sku(1 + rnd.IntN(t.SKUs)), Quantity: 1 + rnd.Int64N(5)}
		body, err := json.Marshal(o)
		if err != nil {
			panic(err) // a string and a number: cannot happen
		}
		id := fmt.Sprintf("order-%d-%06d", t.Seed, i+1)
		header := []kafka.Header{{Key: idHeader, Value: []byte(id)}}
		all = append(all, placed{i, kafka.Message{Key: []byte(o.SKU), Value: body, Headers: header}})
		if rnd.Float64() < t.Duplicates {
			all = append(all, placed{i + rnd.IntN(duplicateWithin), kafka.Message{Key: []byte(id), Value: body, Headers: header}})
		}
	}
	slices.SortStableFunc(all, func(a, b placed) int { return a.at - b.at })
	msgs := make([]kafka.Message, len(all))
	for i, p := range all {
		msgs[i] = p.msg
	}
	return msgs
}

type produceCmd struct {
	services
	traffic
	Rate float64 `default:"0" help:"Messages a second; 0: as fast as the broker takes them."`
}

// Run sends the traffic and says how much it was. Every message is acknowledged by all replicas before it counts as sent.
func (c *produceCmd) Run(ctx context.Context, t terminal) error {
	bad := append(c.services.validate(), c.traffic.validate()...)
	if !(c.Rate >= 0) {
		bad = append(bad, fmt.Errorf("--rate %v: at least 0; 0 means as fast as the broker takes them", c.Rate))
	}
	if err := problems(bad); err != nil {
		return err
	}
	msgs := c.messages()
	start := time.Now()
	sent, err := send(ctx, c.services, msgs, c.Rate)
	if err != nil {
		return fmt.Errorf("%w (%d of %d messages were sent; the same --seed sends the same ones again)", err, sent, len(msgs))
	}
	fmt.Fprintf(t.out, "sent %d messages for %d orders to topic %s in %v\n", sent, c.Orders, c.Topic, time.Since(start).Round(time.Millisecond))
	return nil
}

// send writes msgs in bursts of at most a tenth of a second's worth and returns how many are acknowledged for certain.
func send(ctx context.Context, s services, msgs []kafka.Message, rate float64) (sent int, err error) {
	if err := s.requireTopic(ctx); err != nil {
		return 0, err
	}
	transport := &kafka.Transport{MetadataTopics: []string{s.Topic}}
	defer transport.CloseIdleConnections()
	w := &kafka.Writer{
		Addr: kafka.TCP(s.Brokers...), Topic: s.Topic, Balancer: &kafka.Hash{}, Transport: transport,
		RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond, BatchSize: 500,
	}
	defer func() {
		if cerr := w.Close(); err == nil {
			err = cerr
		}
	}()
	burst := 500
	if rate > 0 {
		burst = max(1, min(burst, int(rate/10)))
	}
	start := time.Now()
	for chunk := range slices.Chunk(msgs, burst) {
		if rate > 0 {
			due := start.Add(time.Duration(float64(sent) / rate * float64(time.Second)))
			if err := wait(ctx, time.Until(due)); err != nil {
				return sent, err
			}
		}
		if err := w.WriteMessages(ctx, chunk...); err != nil {
			return sent, fmt.Errorf("send to topic %s: %w", s.Topic, err)
		}
		sent += len(chunk)
	}
	return sent, nil
}
