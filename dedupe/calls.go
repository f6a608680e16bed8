package dedupe

import (
	"context"
	"time"
)

// Names of the two stores in hooks and logs.
const (
	storeRedis = "redis"
	storeLog   = "log"
)

// opClaim is the operation of which Busy, Done and Dead are answers; to the others they are errors.
const opClaim = "claim"

// sayable says whether a store may answer v to op without an error.
func sayable(op string, v Verdict) bool {
	return v == Claimed || op == opClaim && (v == Busy || v == Done || v == Dead)
}

// ask makes one call to a store, shows it to the hooks, and makes sure that every request has an answer.
func ask[Q any](ctx context.Context, g *Guard, store, op string, f func(context.Context, []Q) []Reply, reqs ...Q) []Reply {
	if len(reqs) == 0 {
		return nil
	}
	start := time.Now()
	reps := f(ctx, reqs)
	if len(reps) != len(reqs) { // a broken implementation must not be taken for an answer
		reps = make([]Reply, len(reqs))
		for i := range reps {
			reps[i].Err = ErrOutcomeUnknown
		}
	}
	var err error
	for i := range reps {
		if reps[i].Err == nil && !sayable(op, reps[i].Verdict) {
			reps[i].Err = ErrOutcomeUnknown
		}
		if err == nil && reps[i].Err != nil {
			err = reps[i].Err
		}
	}
	g.storeCalled(ctx, store, op, len(reqs), start, err)
	return reps
}

func (g *Guard) storeCalled(ctx context.Context, store, op string, n int, start time.Time, err error) {
	for _, h := range g.cfg.Hooks {
		if h, ok := h.(HookStoreCall); ok {
			g.safely(ctx, func() { h.OnStoreCall(ctx, store, op, n, time.Since(start), err) })
		}
	}
}

func (g *Guard) verdict(ctx context.Context, k Key, out Outcome, err error, start time.Time) {
	e := VerdictEvent{Scope: g.cfg.Scope, Mode: g.cfg.Mode, Key: k, Verdict: out.Verdict, Degraded: out.Degraded, Took: time.Since(start), Err: err}
	for _, h := range g.cfg.Hooks {
		if h, ok := h.(HookVerdict); ok {
			g.safely(ctx, func() { h.OnVerdict(ctx, e) })
		}
	}
}

func (g *Guard) leaseLost(ctx context.Context, k Key) {
	g.cfg.Logger.WarnContext(ctx, "lease lost", "key", k)
	for _, h := range g.cfg.Hooks {
		if h, ok := h.(HookLeaseLost); ok {
			g.safely(ctx, func() { h.OnLeaseLost(ctx, k) })
		}
	}
}

func (g *Guard) anomaly(ctx context.Context, code string, k Key, err error) {
	g.cfg.Logger.ErrorContext(ctx, "anomaly", "code", code, "scope", g.cfg.Scope, "key", k, "err", err)
	for _, h := range g.cfg.Hooks {
		if h, ok := h.(HookAnomaly); ok {
			g.safely(ctx, func() { h.OnAnomaly(ctx, code, k, err) })
		}
	}
}

// safely keeps a hook's panic away from the message.
func (g *Guard) safely(ctx context.Context, f func()) {
	defer func() {
		if p := recover(); p != nil {
			g.cfg.Logger.ErrorContext(ctx, "hook panicked", "panic", p)
		}
	}()
	f()
}

// inspectLog reads one row of the log.
func (g *Guard) inspectLog(ctx context.Context, k Key) (Record, error) {
	return g.inspect(ctx, storeLog, g.cfg.Log, k)
}

func (g *Guard) inspect(ctx context.Context, name string, s Store, k Key) (Record, error) {
	start := time.Now()
	recs, err := s.Inspect(ctx, []Key{k})
	if err == nil && len(recs) != 1 {
		err = ErrOutcomeUnknown
	}
	g.storeCalled(ctx, name, "inspect", 1, start, err)
	if err != nil {
		return Record{}, opError("inspect", k, err)
	}
	return recs[0], nil
}

// learn tells Redis what the log answered. Best effort: Redis never decides.
func (g *Guard) learn(ctx context.Context, recs ...Record) {
	if g.cfg.Store == nil || g.cfg.Mode == RedisOnly || len(recs) == 0 {
		return
	}
	start := time.Now()
	errs := g.cfg.Store.Learn(ctx, recs, g.cfg.Retention)
	var err error
	for i, e := range errs {
		if e != nil {
			err = e
			g.cfg.Logger.DebugContext(ctx, "redis not told", "key", recs[i].Key, "state", recs[i].State.String(), "err", e)
		}
	}
	g.storeCalled(ctx, storeRedis, "learn", len(recs), start, err)
}
