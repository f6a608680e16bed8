package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/lanes"
)

const (
	// handlerGrace is how long handlers may go on after their contexts ended in a drain.
	handlerGrace = 3 * time.Second
	// settlePause is how long nothing must change before the client is shut down: it notes its last offsets after our callback has returned, and
	// fetches that were under way when it was suspended come in.
	settlePause = 50 * time.Millisecond
	// settleTimeout is for messages that the client sends back to the broker, after our callback has returned too.
	settleTimeout = 3 * time.Second
)

// route is one pipeline with the topics that it gets.
type route struct {
	topics  []string
	pipe    *consumer.Pipeline
	policy  consumer.Policy
	pool    *lanes.Pool
	gate    gate
	letters consumer.DeadLetters // nil: off
}

// run is one call of Consumer.Run.
type run struct {
	cfg Config // with the broker's Levels, once it has been asked
	log *slog.Logger
	ctx context.Context // ends when Run is to stop
	end context.CancelCauseFunc

	routes  []*route
	cluster *cluster
	// how long messages wait here for a store
	parkedAtMost time.Duration
	brokers      []string       // addresses of masters
	released     chan struct{}  // closed when the client is shut down: what it is told now has no effect
	wg           sync.WaitGroup // probes, lag

	clientMu  sync.Mutex // never taken with mu held
	suspended bool

	mu       sync.Mutex
	phase    Phase
	client   *client // nil: not started
	queues   map[queueKey]*queue
	jobs     map[*job]struct{} // that a callback of the client waits for
	inside   int               // callbacks, parked ones not counted
	parked   int               // callbacks that wait for released
	idle     chan struct{}     // closed when nothing is inside, once the drain has begun
	draining bool
	assigned []Queue
	lag      map[Queue]int64
	left     map[Queue]error
}

func newRun(ctx context.Context, c *Consumer) *run {
	cfg := c.cfg
	r := &run{
		cfg: cfg, log: cfg.Logger, cluster: newCluster(cfg), released: make(chan struct{}), idle: make(chan struct{}), parkedAtMost: c.parkedAtMost,
		phase: Starting, queues: map[queueKey]*queue{}, jobs: map[*job]struct{}{}, lag: map[Queue]int64{}, left: map[Queue]error{},
	}
	r.ctx, r.end = context.WithCancelCause(ctx)
	for _, x := range c.routes {
		rt := &route{topics: x.Topics, pipe: x.Pipeline, policy: x.Pipeline.Policy()}
		rt.pool = lanes.NewPool(rt.policy.Concurrency)
		if name := letterTopic(cfg.Group, rt.policy); name != "" {
			rt.letters = &letterWriter{cluster: r.cluster, topic: cfg.resource(name), log: cfg.Logger}
		}
		r.routes = append(r.routes, rt)
	}
	return r
}

// run works until ctx ends or a message asks for a halt. Its order at the end: fetching stops, what is in flight is settled, the client sends its
// offsets and leaves the group, connections are closed.
func (r *run) run() error {
	defer func() {
		r.end(nil)
		r.wg.Wait()
		r.cluster.close()
	}()
	err := r.survey(r.ctx)
	if err == nil {
		err = r.start()
	}
	if err != nil {
		if r.ctx.Err() != nil {
			return nil // stopped while starting
		}
		return err
	}
	<-r.ctx.Done()
	err = r.drain()
	var h *halt
	if errors.As(context.Cause(r.ctx), &h) {
		err = errors.Join(h, err)
	}
	return err
}

// start starts the client. One that has failed cannot be started again, so each Run has its own.
func (r *run) start() error {
	c, err := newClient(r)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.client, r.phase = c, Running
	r.mu.Unlock()
	if err := c.Start(); err != nil {
		close(r.released)
		return fmt.Errorf("rocketmq: start: %w", err) // it has ended by itself
	}
	r.wg.Go(r.watchLag)
	return nil
}

// halt is a message's wish that Run ends.
type halt struct{ err error }

func (h *halt) Error() string { return h.err.Error() }
func (h *halt) Unwrap() error { return h.err }

// drain ends the work. The client's Shutdown waits for nothing and forgets the results of what runs, so all of it is done before; and deliveries that
// come meanwhile are parked, since the client would otherwise write to a channel that it has closed.
func (r *run) drain() error {
	queues := r.beginDrain()
	r.applySuspend()
	errs := make([]error, len(queues))
	var drains sync.WaitGroup
	for i, q := range queues {
		drains.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), q.route.policy.DrainTimeout)
			defer cancel()
			errs[i] = q.lanes.Drain(ctx, handlerGrace)
		})
	}
	drains.Wait()
	err := errors.Join(errs...)
	if err == nil {
		select {
		case <-r.idle: // callbacks only have to return by now
		case <-time.After(handlerGrace):
			r.log.ErrorContext(r.ctx, "deliveries have not returned; their messages come again")
		}
	}
	client := r.waitNoted()
	err = errors.Join(err, client.Shutdown())
	close(r.released)
	return err
}

// waitNoted waits until the client has noted all results, and for the settlePause has no messages but those that are parked. What it has not noted by the
// time limit is delivered again.
func (r *run) waitNoted() *client {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), settleTimeout)
	defer cancel()
	r.mu.Lock()
	client := r.client
	r.mu.Unlock()
	noted := make(chan struct{})
	go func() { // the client may ask a broker, which may be away
		defer close(noted)
		for calm := false; ; {
			unsettled := client.unsettled()
			r.mu.Lock()                            // which also orders what callbacks did before what Shutdown does
			done := unsettled <= r.parked+r.inside // inside: handlers that the drain gave up on
			r.mu.Unlock()
			if done && calm {
				return
			}
			wait := 5 * time.Millisecond
			if calm = done; done {
				wait = settlePause
			}
			if sleep(ctx, wait) != nil {
				return
			}
		}
	}()
	select {
	case <-noted:
	case <-ctx.Done():
	}
	return client
}

// beginDrain parks what waits; nothing begins any more.
func (r *run) beginDrain() []*queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.draining = Draining, true
	var queues []*queue
	for _, q := range r.queues {
		q.lanes.Stop()
		queues = append(queues, q)
	}
	for j := range r.jobs {
		j.withdraw(parked)
	}
	r.checkIdle()
	return queues
}

// checkIdle tells the drain that no callback is inside. With r.mu held.
func (r *run) checkIdle() {
	if r.draining && r.inside == 0 {
		select {
		case <-r.idle:
		default:
			close(r.idle)
		}
	}
}

// applySuspend lets the client fetch, or not. A suspended client looks every 30 s whether it may go on, so it is suspended only for what
// lasts: until then its limits bound what it fetches, and nothing of it begins. Resuming makes the client talk to the name server, so no lock of
// callbacks is held.
func (r *run) applySuspend() {
	r.clientMu.Lock()
	defer r.clientMu.Unlock()
	r.mu.Lock()
	client, held := r.client, false
	for _, rt := range r.routes {
		held = held || rt.gate.closed() && time.Since(rt.gate.since) > r.parkedAtMost
	}
	held = r.draining || held && len(r.assigned) > 0 // while it is suspended, a client gets no queues
	r.mu.Unlock()
	if client == nil || held == r.suspended {
		return
	}
	if r.suspended = held; held {
		client.Suspend()
	} else {
		client.Resume()
	}
}

// hold is Pause and Resume of the Consumer.
func (r *run) hold(on bool) {
	r.mu.Lock()
	for _, rt := range r.routes {
		rt.gate.close(func(g *gate) { g.user = on })
		rt.applyGate()
	}
	r.mu.Unlock()
	r.applySuspend()
}

func (r *run) describe(s *State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Phase, s.Err = r.phase, nil
	s.Assigned = slices.Clone(r.assigned)
	if len(r.left) > 0 {
		s.Left = map[Queue]error{}
		for q, err := range r.left {
			s.Left[q] = err
		}
	}
	var h *halt
	if errors.As(context.Cause(r.ctx), &h) {
		s.Phase, s.Err = Draining, h
	}
	if s.Phase != Running {
		return
	}
	for _, rt := range r.routes {
		if rt.gate.closed() {
			s.Phase = Paused
			s.Err = errors.Join(s.Err, rt.gate.cause)
		}
	}
}
