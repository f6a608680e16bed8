package kafka

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	readyTimeout = 5 * time.Second
	probeMin     = 200 * time.Millisecond
	probeMax     = 5 * time.Second
	// calm is how long there must be no outage until probing begins with probeMin again.
	calm = 10 * time.Second
)

// errOutage stands for a cause that nobody told.
var errOutage = errors.New("store does not answer")

// gate holds a pipeline's work while its store cannot answer, or while the user wants it. Nothing is fetched and nothing begins; heartbeats go on, and a
// rebalance drops what waits, uncommitted.
type gate struct {
	mu      sync.Mutex
	cause   error // of the outage; nil: none
	user    bool
	wait    time.Duration
	resumed time.Time
}

// outage closes the gate and asks the store until it answers. One probe is under way at a time.
func (rt *route) outage(r *run, cause error) {
	rt.gate.mu.Lock()
	defer rt.gate.mu.Unlock()
	if rt.gate.cause != nil || r.ctx.Err() != nil { // the latter: of a handler that outlived Run
		return
	}
	if cause == nil {
		cause = errOutage
	}
	rt.gate.cause = cause
	rt.pool.Pause()
	if time.Since(rt.gate.resumed) > calm {
		rt.gate.wait = 0
	}
	r.log.ErrorContext(r.ctx, "store does not answer; fetching stops until it does", "scope", rt.pipe.Guard().Scope(), "err", cause)
	r.wg.Go(func() { rt.probe(r) })
}

func (rt *route) probe(r *run) {
	for {
		rt.gate.mu.Lock()
		rt.gate.wait = min(max(2*rt.gate.wait, probeMin), probeMax)
		wait := rt.gate.wait
		rt.gate.mu.Unlock()
		if sleep(r.ctx, wait) != nil {
			return
		}
		if rt.ready(r) {
			break
		}
	}
	rt.gate.mu.Lock()
	defer rt.gate.mu.Unlock()
	rt.gate.cause = nil
	rt.gate.resumed = time.Now()
	if !rt.gate.user {
		rt.pool.Resume()
	}
	r.log.InfoContext(r.ctx, "store answers again; fetching goes on", "scope", rt.pipe.Guard().Scope())
}

// ready: a panic of a store is an outage too; the goroutine is ours and must not end the process.
func (rt *route) ready(r *run) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			r.log.ErrorContext(r.ctx, "store panicked", "panic", p)
		}
	}()
	ctx, cancel := context.WithTimeout(r.ctx, readyTimeout)
	defer cancel()
	return rt.pipe.Ready(ctx) == nil
}

// hold and release are Pause and Resume of the Consumer.
func (rt *route) hold() {
	rt.gate.mu.Lock()
	defer rt.gate.mu.Unlock()
	rt.gate.user = true
	rt.pool.Pause()
}

func (rt *route) release() {
	rt.gate.mu.Lock()
	defer rt.gate.mu.Unlock()
	rt.gate.user = false
	if rt.gate.cause == nil {
		rt.pool.Resume()
	}
}

// held says whether the gate is closed, by an outage or by the user.
func (rt *route) held() (outage error, user bool) {
	rt.gate.mu.Lock()
	defer rt.gate.mu.Unlock()
	return rt.gate.cause, rt.gate.user
}
