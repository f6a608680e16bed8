package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/idemq/idemq/consumer"
)

// Consumer is a member of a group. Safe for concurrent use.
type Consumer struct {
	cfg    Config
	routes []Route
	log    *slog.Logger
	// how long a topic must be missing from the metadata before it counts as deleted
	goneFor time.Duration

	mu      sync.Mutex
	running *run           // nil: Run is not under way
	phase   consumer.Phase // of the last Run when none is under way
	err     error
	user    bool // paused
}

// NewConsumer checks cfg and lists every problem (errors.Join). It does no I/O and starts nothing. The pipeline gets cfg.Topics; further
// routes share the group and give other topics to other pipelines, each with its own policy. Retry topics are shared: their work counts
// against the concurrency of the first pipeline.
func NewConsumer(cfg Config, pipe *consumer.Pipeline, more ...Route) (*Consumer, error) {
	routes := append([]Route{{Topics: cfg.Topics, Pipeline: pipe}}, more...)
	if err := cfg.setDefaults(routes); err != nil {
		return nil, err
	}
	return &Consumer{cfg: cfg, routes: routes, log: cfg.Logger, goneFor: 30 * time.Second}, nil
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
var ErrRunning = errors.New("kafka: consumer is running already")

// Run probes the cluster, checks the guards against the topics' retention, makes or verifies retry and dead-letter topics, logs what is
// promised, and consumes until ctx ends. Then it drains: nothing begins any more, and Run returns after the last message in flight is settled
// and its offset committed.
//
// nil after a clean stop. An error at the start says in one line what is wrong and what to do. consumer.ErrDrainTimeout: handlers
// did not return within the drain timeout although their contexts ended; their messages will be delivered again. Any other error: a
// message, or the cluster, asked for a halt; nothing of the message that did is acknowledged. A message that halts one member moves on with
// its partition and halts the next one: look at it, or use consumer.PausePartition, which stops one partition instead of the fleet.
//
// Run may be called again after it has returned.
func (c *Consumer) Run(ctx context.Context) error {
	r, err := c.begin(ctx)
	if err != nil {
		return err
	}
	if err = r.run(); err == nil {
		c.log.InfoContext(ctx, "drained and stopped", "group", c.cfg.Group)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = nil
	c.phase, c.err = consumer.PhaseStopped, err
	if err != nil {
		c.phase = consumer.PhaseHalted
	}
	return err
}

func (c *Consumer) begin(ctx context.Context) (*run, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return nil, ErrRunning
	}
	c.running = newRun(c, ctx)
	c.phase, c.err = consumer.PhaseStarting, nil
	if c.user {
		c.running.hold()
	}
	return c.running, nil
}

// Pause stops fetching, and what waits in this process does not begin; what runs goes on. Heartbeats go on too, so no partition moves. It
// lasts until Resume, over rebalances and a later Run.
func (c *Consumer) Pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.user = true
	if c.running != nil {
		c.running.hold()
	}
}

// Resume ends Pause. An outage goes on until its store answers.
func (c *Consumer) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.user = false
	if c.running != nil {
		c.running.release()
	}
}
