package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/dedupe"
)

type checkCmd struct {
	services
	Wait time.Duration `placeholder:"D" help:"Wait so long at most until nothing is pending."`
	JSON bool          `name:"json" help:"Print one JSON object."`
}

// Run compares what was ordered, read from the topic's start, with what took effect. Only once nothing is pending is an order
// without effect a lost one.
func (c *checkCmd) Run(ctx context.Context, t terminal) error {
	bad := append(c.validateStores(), c.validateDB()...)
	if c.Wait < 0 {
		bad = append(bad, fmt.Errorf("--wait %v: must not be negative", c.Wait))
	}
	if err := problems(bad); err != nil {
		return err
	}
	start := time.Now()
	p, err := c.open(nil)
	if err != nil {
		return err
	}
	defer p.close()
	guarantee, err := p.promise(ctx)
	if err != nil {
		return err
	}
	if err := c.awaitSettled(ctx, c.Group, c.Wait); err != nil {
		return err
	}
	r, err := c.compare(ctx, p.db)
	if err != nil {
		return err
	}
	r.Guarantee = guarantee
	r.Seconds = time.Since(start).Seconds()
	write := r.writeText
	if c.JSON {
		write = r.writeJSON
	}
	return errors.Join(write(t.out), r.verdict(c.Mode))
}

// awaitSettled returns when group has nothing pending, or after atMost.
func (s services) awaitSettled(ctx context.Context, group string, atMost time.Duration) error {
	b := openBroker(s.Brokers)
	defer b.close()
	deadline := time.Now().Add(atMost)
	return poll(ctx, func() (bool, error) {
		n, err := b.pending(ctx, s.Topic, group)
		return n == 0 || time.Now().After(deadline), err
	})
}

// compare reads the broker first and the stock after it: an effect can never be there before its order.
func (s services) compare(ctx context.Context, db *sqlx.DB) (report, error) {
	l, err := s.readLedger(ctx)
	if err != nil {
		return report{}, err
	}
	b, err := readBooks(ctx, db)
	if err != nil {
		return report{}, err
	}
	return tally(l, b), nil
}

// readLedger reads all orders and dead letters. What is pending is asked first: a message that is settled meanwhile counts as pending,
// never as lost.
func (s services) readLedger(ctx context.Context) (l ledger, err error) {
	b := openBroker(s.Brokers)
	defer b.close()
	topics, err := b.topics(ctx)
	if err != nil {
		return l, err
	}
	if topics[s.Topic] == nil {
		return l, s.requireTopic(ctx)
	}
	if l.pending, err = b.pending(ctx, s.Topic, s.Group); err != nil {
		return l, err
	}
	l.orders, l.letters = map[string]Order{}, map[string]bool{}
	for m, err := range b.records(ctx, s.Topic, topics[s.Topic]) {
		if err != nil {
			return l, err
		}
		l.records++
		id := orderID(m)
		if _, seen := l.orders[id]; id == "" || seen {
			continue
		}
		var o Order
		if err := json.Unmarshal(m.Value, &o); err != nil {
			o = Order{} // not an order: it becomes a dead letter, and takes nothing
		}
		l.orders[id] = o
	}
	p, err := s.policy()
	if err != nil {
		return l, err
	}
	topic := s.deadLetterTopic(p)
	if topics[topic] == nil {
		return l, nil // no consumer has started yet
	}
	q, err := kafka.OpenDeadLetters(kafka.Config{Brokers: s.Brokers}, topic)
	if err != nil {
		return l, err
	}
	defer q.Close() //nolint:errcheck // it only read
	for d, err := range q.List(ctx) {
		if err != nil {
			return l, err
		}
		l.letters[d.ID] = true
	}
	return l, nil
}

// promise is what the mode promises with these settings, in one line. Where there is a log it is asked whether the scope runs in this
// mode. In redis-only mode nothing may be asked: a start there accepts Redis's memory as it is, and that is for consumers to do.
func (p *parts) promise(ctx context.Context) (string, error) {
	if p.log == nil {
		return p.guard.Promise(), nil
	}
	r, err := p.guard.Check(ctx, dedupe.Environment{})
	return r.Promise, err
}
