package dedupe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Guard lets each message of a scope take effect once. Safe for concurrent use. The zero Guard is not usable: call New.
type Guard struct {
	cfg Config

	entering chan struct{} // holds a token while one Enter or Remember is under way
	entered  atomic.Bool   // the scope row is ours (modes with a log), or the marks are set (RedisOnly)
	known    atomic.Value  // Incarnation: the last one the log told us

	unsettled unsettled // deliveries of this process that ended without an answer
	renewer   renewer   // of the claims in flight

	stale atomic.Int64 // nanoseconds: Purge leaves rows alone that a retry tier may still deliver

	closing  sync.Mutex
	closed   bool
	inFlight sync.WaitGroup
}

// New checks cfg and lists every problem (errors.Join). It does no I/O and starts nothing: the first use, or Check, asks the
// stores, so a guard cannot be used unchecked.
func New(cfg Config) (*Guard, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	g := &Guard{cfg: cfg, entering: make(chan struct{}, 1)}
	g.unsettled.lease = cfg.Lease
	g.renewer.guard = g
	return g, nil
}

// Scope is also the default consumer group of the adapters.
func (g *Guard) Scope() string { return g.cfg.Scope }

// Mode is what the scope promises.
func (g *Guard) Mode() Mode { return g.cfg.Mode }

// Lease is how long a claim lasts unless renewed.
func (g *Guard) Lease() time.Duration { return g.cfg.Lease }

// Retention is how long a done key is remembered.
func (g *Guard) Retention() time.Duration { return g.cfg.Retention }

// StopGrace is how long a handler and its settling may go on after their context ended.
func (g *Guard) StopGrace() time.Duration { return g.cfg.StopGrace }

// Key is the key of an id in the guard's scope.
func (g *Guard) Key(namespace, id string) (Key, error) { return NewKey(g.cfg.Scope, namespace, id) }

// Outcome of a delivery.
type Outcome struct {
	Verdict  Verdict
	Claim    *Claim // when Claimed
	Record   Record // what is known otherwise: result, reason, lease
	Degraded bool   // answered without the fast path
}

// errPanicked is the cause of a release after a panic or runtime.Goexit.
var errPanicked = errors.New("handler panicked")

// Do runs fn if this delivery may take effect.
//
// **A nil error means: acknowledge.** The verdict tells why: Claimed (fn ran now), Done, Dead. On any error nothing may be
// acknowledged: fn's own error, ErrBusy, ErrConflict, ErrUnavailable, ErrOutcomeUnknown, ErrNotRecorded.
// fn's context carries the claim and ends with cause ErrLeaseLost when the lease is lost. A panic in fn (and runtime.Goexit)
// goes on after the claim is released. Do for a key inside a handler that holds it is ErrNested.
//
// Each error of fn counts as a failure of the message, unless ctx was cancelled (a drain; a deadline counts) or the error is a store's; but Do never buries: how often to try again, and when to give up, is
// the caller's (Claim.Attempt tells, and fn may return Bury). package consumer does both by a policy.
func (g *Guard) Do(ctx context.Context, d Delivery, fn func(context.Context, *Claim) error) (Outcome, error) {
	out, err := g.Claim(ctx, d)
	if err != nil {
		return out, err
	}
	switch out.Verdict {
	case Busy:
		return out, &BusyError{Key: out.Record.Key, RetryIn: max(0, out.Record.LeaseLeft)}
	case Conflict:
		return out, opError("claim", out.Record.Key, ErrConflict)
	case Done, Dead:
		return out, nil
	}
	c := out.Claim
	hctx, stop := g.Hold(ctx, c)
	defer stop() //nolint:errcheck // a lease lost meanwhile shows in what the store answers to Complete

	returned := false
	defer func() {
		if !returned { // a panic or Goexit goes on; the claim is not kept for its lease
			if _, errs := g.Release(ctx, ReleaseReason{Cause: errPanicked}, c); errs[0] != nil {
				g.cfg.Logger.WarnContext(ctx, "claim not released after panic", "key", c.key, "err", errs[0])
			}
		}
	}()
	ferr := c.lostLease() // over before it began: the process stood still since the claim
	if ferr == nil {
		ferr = fn(hctx, c)
	}
	returned = true
	return g.settle(ctx, c, ferr)
}

// settle ends the claim of Do.
func (g *Guard) settle(ctx context.Context, c *Claim, ferr error) (Outcome, error) {
	var bury *buryRequest
	switch {
	case errors.As(ferr, &bury):
		return g.buried(ctx, c, bury.reason)
	case ferr == nil:
		outs, errs := g.Complete(ctx, c)
		if errs[0] == nil {
			return outs[0], verdictError(outs[0])
		}
		if errors.Is(errs[0], ErrNotRecorded) { // the work may be committed: left to its lease, so that nobody runs it at once
			c.settle()
		}
		if !errors.Is(errs[0], ErrNotApplied) {
			return outs[0], errs[0]
		}
		ferr = errs[0]
	}
	out, _, err := g.Fail(ctx, c, ferr)
	if err == nil && out.Verdict != Claimed {
		return out, verdictError(out)
	}
	why := ReleaseReason{Cause: ferr, HandBack: err != nil || cancelled(ctx)}
	if _, errs := g.Release(ctx, why, c); errs[0] != nil {
		g.cfg.Logger.WarnContext(ctx, "claim not released", "key", c.key, "err", errs[0])
	}
	if err != nil {
		return out, err
	}
	return out, ferr
}

// buried marks the key of a message whose letter the handler has stored.
func (g *Guard) buried(ctx context.Context, c *Claim, reason string) (Outcome, error) {
	v, err := g.Bury(ctx, c, reason, func(context.Context) error { return nil })
	if err != nil {
		if _, errs := g.Release(ctx, ReleaseReason{HandBack: true}, c); errs[0] != nil && !errors.Is(errs[0], ErrStale) {
			g.cfg.Logger.WarnContext(ctx, "claim not released", "key", c.key, "err", errs[0])
		}
		return Outcome{Degraded: c.degraded}, err
	}
	if v == Busy { // the claim is another's by now, and the letter lies
		v = Dead
	}
	return Outcome{Verdict: v, Record: Record{Key: c.key}, Degraded: c.degraded}, nil
}

// cancelled tells a drain or a revoke from a handler's timeout, which is a deadline.
func cancelled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// verdictError says what may not be acknowledged of an outcome that settled a handler's run.
func verdictError(out Outcome) error {
	switch out.Verdict {
	case Busy:
		return &BusyError{Key: out.Record.Key, RetryIn: max(0, out.Record.LeaseLeft)}
	case Conflict:
		return opError("settle", out.Record.Key, ErrConflict)
	}
	return nil
}

type buryRequest struct{ reason string }

func (b *buryRequest) Error() string { return "dedupe: bury: " + b.reason }

// Bury is what a function given to Do returns after it has stored the dead letter itself: Do marks the key Dead and returns the
// verdict Dead and a nil error. Never before the letter is stored: a Dead key is acknowledged unseen.
func Bury(reason string) error { return &buryRequest{reason} }

// Call is Do for a function with a result: duplicates get the value of the first run. T travels as JSON and must fit
// Config.MaxResultBytes: a larger one is an error before anything is completed. In Transactional mode the result commits with the
// row only if fn sets it before it records; so call c.SetResult inside the transaction there, and Do instead of Call.
func Call[T any](ctx context.Context, g *Guard, d Delivery, fn func(context.Context, *Claim) (T, error)) (T, Outcome, error) {
	var v T
	if g.cfg.Mode == Transactional {
		return v, Outcome{}, fmt.Errorf("dedupe: call: %w: Call needs logged or redis-only; in transactional use Do and set the result inside the transaction", ErrWrongMode)
	}
	out, err := g.Do(ctx, d, func(ctx context.Context, c *Claim) error {
		var err error
		if v, err = fn(ctx, c); err != nil {
			return err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return opError("encode result of", c.key, err)
		}
		return c.SetResult(b)
	})
	if err == nil && out.Verdict == Done && len(out.Record.Result) > 0 {
		if jerr := json.Unmarshal(out.Record.Result, &v); jerr != nil {
			return v, out, opError("decode result of", out.Record.Key, jerr)
		}
	}
	return v, out, err
}

// enter makes sure that the scope is ours before the first claim.
func (g *Guard) enter(ctx context.Context) error {
	if g.entered.Load() {
		return nil
	}
	select {
	case g.entering <- struct{}{}:
		defer func() { <-g.entering }()
	case <-ctx.Done():
		return fmt.Errorf("dedupe: enter scope %q: %w: %w", g.cfg.Scope, ErrUnavailable, context.Cause(ctx))
	}
	if g.entered.Load() {
		return nil
	}
	if g.cfg.Mode.hasLog() {
		row, err := g.cfg.Log.Enter(ctx, ScopeRow{Scope: g.cfg.Scope, Mode: g.cfg.Mode, Retention: g.cfg.Retention})
		if err != nil {
			return fmt.Errorf("dedupe: enter scope %q: %w", g.cfg.Scope, err)
		}
		if err := g.noteMode(ctx); err != nil { // after the log: what it refuses leaves no note
			return err
		}
		g.known.Store(row.Incarnation)
	} else if err := g.remember(ctx); err != nil {
		return err
	}
	g.entered.Store(true)
	return nil
}

// remember sets the marks of RedisOnly. At start a loss is accepted, by name: the start is the operator's answer to it.
func (g *Guard) remember(ctx context.Context) error {
	if err := g.noteMode(ctx); err != nil {
		return err
	}
	lost, err := g.cfg.Store.(Memory).Remember(ctx, g.cfg.Scope)
	if err != nil {
		return fmt.Errorf("dedupe: enter scope %q: %w", g.cfg.Scope, err)
	}
	if lost {
		g.anomaly(ctx, "memory-lost", Key{}, ErrMemoryLost)
	}
	return nil
}

// incarnation is the last one known. Redis's Done needs more: a heartbeat.
func (g *Guard) incarnation() Incarnation {
	inc, _ := g.known.Load().(Incarnation)
	return inc
}

func (g *Guard) isClosed() bool {
	g.closing.Lock()
	defer g.closing.Unlock()
	return g.closed
}

// alive registers a claim in flight, before anything is asked, so that Close waits for the answer; false after Close.
func (g *Guard) alive() bool {
	g.closing.Lock()
	defer g.closing.Unlock()
	if g.closed {
		return false
	}
	g.inFlight.Add(1)
	return true
}

// Close refuses new claims and waits, as long as ctx lets it, for those in flight. Stores are the caller's to close. May be
// called more than once.
func (g *Guard) Close(ctx context.Context) error {
	g.closing.Lock()
	g.closed = true
	g.closing.Unlock()
	ended := make(chan struct{})
	go func() {
		g.inFlight.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dedupe: close scope %q: claims are still in flight: %w", g.cfg.Scope, context.Cause(ctx))
	}
}
