package lanes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/idemq/idemq/consumer"
)

const (
	// readyTimeout bounds one question whether the store answers.
	readyTimeout = 5 * time.Second
	// calm is how long there must be no outage until the waits between questions begin short again.
	calm = 10 * time.Second
)

// probing are the waits before each question.
var probing = consumer.Backoff{Initial: 200 * time.Millisecond, Max: 5 * time.Second}

// ErrOutage stands for the cause of an outage that nobody told.
var ErrOutage = errors.New("lanes: store does not answer")

// Gate pauses a pool while its store cannot answer, and, beside that, while the user wants it. What runs goes on; nothing begins, and
// Room is false. Safe for concurrent use.
type Gate struct {
	pool  *Pool
	ready func(context.Context) error
	log   *slog.Logger

	mu     sync.Mutex
	ctx    context.Context // of probes; nil before the first Start
	cause  error           // of the outage, while one probe is under way; nil: no outage
	user   bool
	ended  time.Time // the last outage
	probes sync.WaitGroup
	// asked counts the questions since the last calm. Only the probe changes it, or, when there is none, Outage.
	asked int
}

// NewGate returns an open gate. ready asks the store whether it answers again.
func NewGate(p *Pool, ready func(context.Context) error, log *slog.Logger) *Gate {
	return &Gate{pool: p, ready: ready, log: log}
}

// Start lets Outage close the gate until ctx ends. After that the gate stays as it is, so that nothing begins during the drain. stop, called
// when all has ended, waits for the probe and forgets the outage; then Start may be called again.
func (g *Gate) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ctx = ctx
	return func() {
		g.mu.Lock()
		cancel() // with the lock held: an Outage has begun its probe by now, or never will
		g.mu.Unlock()
		g.probes.Wait()
		g.over()
	}
}

// Outage closes the gate until the store answers: one goroutine asks it, more and more seldom. Nothing happens in an outage that is known,
// nor outside of Start: a handler may outlive its run.
func (g *Gate) Outage(cause error) {
	if cause == nil {
		cause = ErrOutage
	}
	g.mu.Lock()
	ctx := g.ctx
	if ctx == nil || ctx.Err() != nil || g.cause != nil {
		g.mu.Unlock()
		return
	}
	g.cause = cause
	g.pool.Pause()
	if time.Since(g.ended) > calm {
		g.asked = 0
	}
	g.probes.Go(func() { g.probe(ctx) })
	g.mu.Unlock()
	g.log.ErrorContext(ctx, "store does not answer; fetching stops until it does", "err", cause)
}

func (g *Gate) probe(ctx context.Context) {
	for {
		g.asked++
		if Sleep(ctx, probing.Delay(g.asked)) != nil {
			return
		}
		if g.answers(ctx) == nil {
			break
		}
	}
	g.log.InfoContext(ctx, "store answers again; fetching goes on")
	g.over()
}

// answers asks the store once. A panic of the store is an outage too: this goroutine is ours, and must not end the process.
func (g *Gate) answers(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("lanes: store panicked: %v", p)
			g.log.ErrorContext(ctx, "store panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return g.ready(ctx)
}

func (g *Gate) over() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil {
		g.cause, g.ended = nil, time.Now()
	}
	g.reopen()
}

// reopen lets work begin if nobody is against it. With g.mu held.
func (g *Gate) reopen() {
	if g.cause == nil && !g.user {
		g.pool.Resume()
	}
}

// Pause closes the gate until Resume, whatever outages come and go.
func (g *Gate) Pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.user = true
	g.pool.Pause()
}

// Resume ends Pause. An outage goes on until its store answers.
func (g *Gate) Resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.user = false
	g.reopen()
}

// Phase is PhasePaused, with the cause of an outage if there is one, or PhaseRunning.
func (g *Gate) Phase() (consumer.Phase, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.user || g.cause != nil {
		return consumer.PhasePaused, g.cause
	}
	return consumer.PhaseRunning, nil
}

// Sleep waits for d, or, when ctx ends, returns the cause of that.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	return context.Cause(ctx)
}
