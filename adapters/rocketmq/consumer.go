package rocketmq

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/idemq/idemq/consumer"
)

// Consumer is a member of a group. Safe for concurrent use.
type Consumer struct {
	cfg    Config
	routes []Route
	// how long messages wait here for a store
	parkedAtMost time.Duration

	switching sync.Mutex // of Pause and Resume; taken before mu

	mu      sync.Mutex
	running *run  // nil: Run is not under way
	phase   Phase // of the last Run when none is under way
	err     error
	user    bool // paused
}

// NewConsumer checks cfg and lists every problem (errors.Join). It does no I/O and starts nothing. The pipeline gets cfg.Topics; further
// routes share the group and give other topics to other pipelines, each with its own policy.
func NewConsumer(cfg Config, pipe *consumer.Pipeline, more ...Route) (*Consumer, error) {
	routes := append([]Route{{Topics: cfg.Topics, Pipeline: pipe}}, more...)
	if err := cfg.setDefaults(routes); err != nil {
		return nil, err
	}
	routeLog(cfg.Logger)
	return &Consumer{cfg: cfg, routes: routes, parkedAtMost: parkedAtMost}, nil
}

// Run is NewConsumer and Consumer.Run.
func Run(ctx context.Context, cfg Config, pipe *consumer.Pipeline, more ...Route) error {
	c, err := NewConsumer(cfg, pipe, more...)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// ErrRunning: Run was called while it was under way.
var ErrRunning = errors.New("rocketmq: consumer is running already")

// Run asks name servers and brokers, makes the group, its retry topic and the dead-letter topic where they are missing, checks the guards, logs what
// is promised, and consumes until ctx ends. Then it drains: nothing begins any more, and Run returns after the last message in flight is settled
// and the offsets are at the broker.
//
// nil after a clean stop. An error at the start says in one line what is wrong and what to do. consumer.ErrDrainTimeout: handlers
// did not return within the drain timeout although their contexts ended; their messages will be delivered again. Any other error: a
// message asked for a halt; it is not acknowledged. It moves on with its queue and halts the next member: look at it, or use
// consumer.PausePartition, which stops one queue instead of the fleet.
//
// Run may be called again after it has returned. Each call leaves the client's sleeping goroutines behind, some 25.
func (c *Consumer) Run(ctx context.Context) error {
	r, err := c.begin(ctx)
	if err != nil {
		return err
	}
	err = r.run()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = nil
	c.phase, c.err = Stopped, err
	if err != nil {
		c.phase = Halted
	}
	return err
}

func (c *Consumer) begin(ctx context.Context) (*run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return nil, ErrRunning
	}
	c.running = newRun(ctx, c)
	c.phase, c.err = Starting, nil
	if c.user {
		c.running.hold(true)
	}
	return c.running, nil
}

// Pause: what waits in this process does not begin; what runs goes on. Messages are fetched up to Config.MaxWaiting; fetching stops when the
// pause has lasted a minute, and goes on, then, up to half a minute after Resume. A pause lasts until Resume, over a later Run. The member keeps
// its queues; one that joins meanwhile consumes its share of them too. What waits longer than Config.ConsumeTimeout goes back to the broker, uncounted.
func (c *Consumer) Pause() { c.hold(true) }

// Resume ends Pause. An outage goes on until its store answers.
func (c *Consumer) Resume() { c.hold(false) }

func (c *Consumer) hold(on bool) {
	c.switching.Lock() // the client takes its time to go on, and State must not wait for it
	defer c.switching.Unlock()
	c.mu.Lock()
	c.user = on
	r := c.running
	c.mu.Unlock()
	if r != nil {
		r.hold(on)
	}
}
