package consumer

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/internal/hook"
)

// protect runs f on a goroutine of its own, so that a panic and runtime.Goexit become errors, and waits for it.
func protect(f func() error) error {
	ended := make(chan error, 1)
	go func() {
		var err error = &panicError{} // of Goexit, which no recover sees
		defer func() { ended <- err }()
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{value: v, stack: debug.Stack()}
			}
		}()
		err = f()
	}()
	return <-ended
}

// ended is how a run of a handler ended.
type ended struct {
	err       error
	cancelled error // why the handler's context had ended, if that excuses it; its own timeout does not
	together  bool  // err is about all messages, whatever a BatchError says
}

// of is the end of message i of n in a batch. whole says that err is about all of them, so that nobody knows whose fault it is.
func (e ended) of(i, n int) (one ended, whole bool) {
	var each *BatchError
	if e.err == nil || n == 1 && !errors.As(e.err, &each) {
		return e, false
	}
	if errors.As(e.err, &each) && len(each.Errs) == n && !e.together {
		return ended{err: each.Errs[i], cancelled: e.cancelled}, false
	}
	return e, n > 1
}

// rolledBackTogether says that the transaction of a batch took with it what did not fail: nothing of it is applied, and it is to be run
// again without what failed.
func rolledBackTogether(err error, claims []*dedupe.Claim) bool {
	var each *BatchError
	if !errors.As(err, &each) || len(each.Errs) != len(claims) {
		return false
	}
	for i, c := range claims {
		if each.Errs[i] == nil && c.Unrecorded() {
			return true
		}
	}
	return false
}

// handle runs the handler under its claims, which go on being renewed until the returned func is called: after they are settled.
// claims is empty for an unprotected run. A lease that is over before the handler could begin ends the run at once.
func (p *Pipeline) handle(ctx context.Context, ms []*Message, claims []*dedupe.Claim) (ended, func()) {
	tctx, timeUp := context.WithTimeoutCause(ctx, p.cfg.Policy.HandlerTimeout, ErrHandlerTimeout)
	hctx, unhold := p.cfg.Guard.Hold(tctx, claims...)
	settled := func() {
		if lost := unhold(); lost != nil {
			p.cfg.Logger.DebugContext(ctx, "settled after its lease was lost", "err", lost)
		}
		timeUp()
	}
	if lost := context.Cause(hctx); errors.Is(lost, dedupe.ErrLeaseLost) { // the process stood still since the claim: another may be at it
		return ended{err: lost, cancelled: lost}, settled
	}
	for i, c := range claims {
		ms[i].claim = c
	}
	start := time.Now()
	err := protect(func() error {
		if p.cfg.BatchHandler != nil {
			return p.cfg.BatchHandler(hctx, ms)
		}
		return p.cfg.Handler(hctx, ms[0])
	})
	e := ended{err: err, together: rolledBackTogether(err, claims)}
	if cause := context.Cause(hctx); cause != nil && !errors.Is(cause, ErrHandlerTimeout) {
		e.cancelled = cause
	}
	p.handled(ctx, ms, e, time.Since(start))
	for _, m := range ms {
		m.claim = nil
	}
	return e, settled
}

// handled tells hooks and log of a run.
func (p *Pipeline) handled(ctx context.Context, ms []*Message, e ended, took time.Duration) {
	var panicked *panicError
	if errors.As(e.err, &panicked) {
		p.cfg.Logger.ErrorContext(ctx, "handler panicked", "topic", ms[0].Topic, "partition", ms[0].Partition, "err", e.err, "stack", string(panicked.stack))
	}
	for i, m := range ms {
		one, _ := e.of(i, len(ms))
		attempt := 0
		if m.claim != nil {
			attempt = m.claim.Attempt()
		}
		hook.Each(ctx, p.cfg.Logger, p.cfg.Hooks, func(h HookHandled) { h.OnHandled(ctx, m, attempt, took, one.err) })
	}
}
