package memory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/internal/lanes"
)

// Config of a Consumer.
type Config struct {
	Broker *Broker
	Topics []string
	Group  string       // default: the guard's Scope
	Logger *slog.Logger // nil: the pipeline's
}

// Consumer is a member of a group. Safe for concurrent use.
type Consumer struct {
	cfg     Config
	pipe    *consumer.Pipeline
	letters *DeadLetterQueue
	pool    *lanes.Pool
	gate    *lanes.Gate

	mu      sync.Mutex
	phase   consumer.Phase
	err     error
	parts   map[topicPartition]*partition // while Run is under way
	halting chan struct{}                 // closed by the first halt
}

// NewConsumer checks cfg and lists every problem. Nothing is started.
func NewConsumer(cfg Config, pipe *consumer.Pipeline) (*Consumer, error) {
	var errs []error
	if cfg.Broker == nil {
		errs = append(errs, errors.New("memory: Config.Broker: nil: make one with NewBroker"))
	}
	if len(cfg.Topics) == 0 || slices.Contains(cfg.Topics, "") {
		errs = append(errs, fmt.Errorf("memory: Config.Topics: %q: name at least one topic, and none empty", cfg.Topics))
	}
	if pipe == nil {
		errs = append(errs, errors.New("memory: pipeline is nil: make one with consumer.NewPipeline"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if cfg.Group == "" {
		cfg.Group = pipe.Guard().Scope()
	}
	if cfg.Logger == nil {
		cfg.Logger = pipe.Logger()
	}
	letters := pipe.Policy().DeadLetter.Topic
	if letters == "" {
		letters = DeadLetterTopic(cfg.Group)
	}
	pool := lanes.NewPool(pipe.Policy().Concurrency)
	return &Consumer{
		cfg: cfg, pipe: pipe, letters: OpenDeadLetters(cfg.Broker, letters),
		pool: pool, gate: lanes.NewGate(pool, pipe.Ready, cfg.Logger.With("scope", pipe.Guard().Scope())),
	}, nil
}

// Run is NewConsumer and Consumer.Run.
func Run(ctx context.Context, cfg Config, pipe *consumer.Pipeline) error {
	c, err := NewConsumer(cfg, pipe)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// ErrRunning: Run was called while it was under way.
var ErrRunning = errors.New("memory: consumer is running already")

// Run checks the guard, joins the group, consumes until ctx ends, drains, and returns after the last message in flight is settled. nil
// after a clean stop; consumer.ErrDrainTimeout, wrapped, when handlers did not return; otherwise what halted it. It may be called again.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.begin(); err != nil {
		return err
	}
	err := c.run(ctx)
	if err == nil {
		c.cfg.Logger.InfoContext(ctx, "drained and stopped", "group", c.cfg.Group)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase, c.err, c.parts = consumer.PhaseStopped, err, nil
	if err != nil {
		c.phase = consumer.PhaseHalted
	}
	return err
}

func (c *Consumer) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts != nil {
		return ErrRunning
	}
	c.phase, c.err = consumer.PhaseStarting, nil
	c.parts, c.halting = map[topicPartition]*partition{}, make(chan struct{})
	return nil
}

func (c *Consumer) run(ctx context.Context) error {
	if _, err := c.pipe.CheckWith(ctx, dedupe.Environment{}, c.letters.Topic()); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting
		}
		return fmt.Errorf("memory: start: %w", err)
	}
	c.cfg.Broker.join(c)
	defer c.cfg.Broker.leave(c)
	c.setPhase(consumer.PhaseRunning)
	defer c.gate.Start(ctx)()
	var overdue []error
	for {
		mine, changed := c.cfg.Broker.share(c)
		overdue = append(overdue, c.settleDown(ctx, mine)...)
		select {
		case <-ctx.Done():
		case <-c.halting:
		case <-changed:
			continue
		}
		c.setPhase(consumer.PhaseDraining)
		overdue = append(overdue, c.settleDown(ctx, nil)...)
		return errors.Join(append([]error{c.haltedBy()}, overdue...)...)
	}
}

// settleDown gives up what is not mine any more, all at the same time, and takes what is free. The errors name handlers that did not return.
func (c *Consumer) settleDown(ctx context.Context, mine map[topicPartition]int) (overdue []error) {
	var lost []*partition
	for tp, p := range c.owned() {
		if epoch, ok := mine[tp]; !ok || epoch != p.epoch {
			lost = append(lost, p)
		}
	}
	errs := make([]error, len(lost))
	var drains sync.WaitGroup
	for i, p := range lost {
		drains.Go(func() { errs[i] = p.drain(ctx) })
	}
	drains.Wait()
	for i, p := range lost {
		c.remove(p)
		if errs[i] != nil {
			overdue = append(overdue, errs[i])
		}
	}
	for tp := range mine {
		if c.owned()[tp] != nil {
			continue
		}
		if offset, epoch, ok := c.cfg.Broker.take(c, tp); ok {
			c.add(newPartition(ctx, c, tp, offset, epoch))
		}
	}
	return overdue
}

func (c *Consumer) owned() map[topicPartition]*partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := make(map[topicPartition]*partition, len(c.parts))
	for tp, p := range c.parts {
		parts[tp] = p
	}
	return parts
}

func (c *Consumer) add(p *partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[p.tp] = p
}

// remove gives up a drained partition, its last offset committed.
func (c *Consumer) remove(p *partition) {
	p.commit()
	c.mu.Lock()
	delete(c.parts, p.tp)
	c.mu.Unlock()
	c.cfg.Broker.give(c, p.tp)
}

// halt ends Run with err; the first one counts.
func (c *Consumer) halt(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.halting)
	}
}

func (c *Consumer) haltedBy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Pause stops fetching, and what waits does not begin; what runs goes on. No partition moves. It lasts until Resume.
func (c *Consumer) Pause() { c.gate.Pause() }

// Resume ends Pause. An outage goes on until its store answers.
func (c *Consumer) Resume() { c.gate.Resume() }

// Lag is how many messages of this member's partitions are not settled.
func (c *Consumer) Lag() (n int64) {
	for tp, p := range c.owned() {
		c.cfg.Broker.mu.Lock()
		n += int64(len(c.cfg.Broker.topics[tp.topic].partitions[tp.partition]))
		c.cfg.Broker.mu.Unlock()
		n -= p.settledTo()
	}
	return n
}
