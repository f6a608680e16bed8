package rocketmq

import (
	"context"
	"errors"
	"time"
)

const (
	readyTimeout = 5 * time.Second
	probeMin     = 200 * time.Millisecond
	probeMax     = 5 * time.Second
	// calm is how long there must be no outage until probing begins with probeMin again.
	calm = 10 * time.Second
	// parkedAtMost is how long messages wait here for a store to come back; then the broker gets them back.
	parkedAtMost = 60 * time.Second
	// handBackAfter is when a message that was given back in an outage comes again.
	handBackAfter = 10 * time.Second
)

// errOutage stands for a cause that nobody told.
var errOutage = errors.New("store does not answer")

// gate holds a pipeline's work while its store cannot answer, or while the user wants it. Guarded by run.mu.
type gate struct {
	cause   error // of the outage; nil: none
	user    bool
	since   time.Time // closed
	overdue bool      // the outage lasts longer than messages may wait here
	wait    time.Duration
	resumed time.Time
}

func (g *gate) closed() bool { return g.user || g.cause != nil }

// close changes the gate by f, which may close it.
func (g *gate) close(f func(*gate)) {
	was := g.closed()
	if f(g); g.closed() && !was {
		g.since = time.Now()
	}
}

// applyGate lets waiting messages begin, or not. With run.mu held.
func (rt *route) applyGate() {
	if rt.gate.closed() {
		rt.pool.Pause()
	} else {
		rt.pool.Resume()
	}
}

// outage closes the gate and asks the store until it answers. One probe is under way at a time.
func (r *run) outage(rt *route, cause error) {
	r.mu.Lock()
	if rt.gate.cause != nil || r.draining {
		r.mu.Unlock()
		return
	}
	if cause == nil {
		cause = errOutage
	}
	rt.gate.close(func(g *gate) { g.cause = cause })
	rt.applyGate()
	if time.Since(rt.gate.resumed) > calm {
		rt.gate.wait = 0
	}
	r.wg.Go(func() { r.probe(rt) })
	r.mu.Unlock()
	r.log.ErrorContext(r.ctx, "store does not answer; nothing begins until it does", "scope", rt.pipe.Guard().Scope(), "err", cause)
}

func (r *run) probe(rt *route) {
	begin := time.Now()
	for {
		r.mu.Lock()
		rt.gate.wait = min(max(2*rt.gate.wait, probeMin), probeMax)
		wait := rt.gate.wait
		r.mu.Unlock()
		if sleep(r.ctx, wait) != nil {
			return
		}
		if r.ready(rt) {
			break
		}
		if time.Since(begin) > r.parkedAtMost {
			r.applySuspend() // else the client would fetch what is given back
			r.giveBack(rt)
		}
	}
	r.mu.Lock()
	rt.gate.cause, rt.gate.overdue, rt.gate.resumed = nil, false, time.Now()
	rt.applyGate()
	r.mu.Unlock()
	r.log.InfoContext(r.ctx, "store answers again; work goes on", "scope", rt.pipe.Guard().Scope())
	r.applySuspend()
}

// giveBack returns what waits to the broker, uncounted: a client that holds messages for long loses its queues.
func (r *run) giveBack(rt *route) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rt.gate.overdue {
		return
	}
	rt.gate.overdue = true
	for j := range r.jobs {
		if j.route == rt {
			j.withdraw(answer{after: handBackAfter})
		}
	}
}

// withdrawLate is for a job that waits again, in case that those that waited have been withdrawn meanwhile.
func (r *run) withdrawLate(rt *route, j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.draining:
		j.withdraw(parked)
	case rt.gate.overdue:
		j.withdraw(answer{after: handBackAfter})
	}
}

// ready: a panic of a store is an outage too; the goroutine is ours and must not end the process.
func (r *run) ready(rt *route) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			r.log.ErrorContext(r.ctx, "store panicked", "panic", p)
		}
	}()
	ctx, cancel := context.WithTimeout(r.ctx, readyTimeout)
	defer cancel()
	return rt.pipe.Ready(ctx) == nil
}

// sleep waits for d, or returns why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
