package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Fault is what happens to one request.
type Fault uint8

const (
	// None: the request goes through.
	None Fault = iota
	// Before: it is not sent. Nothing is done: ErrUnavailable.
	Before
	// After: it is done, and the reply is lost: ErrOutcomeUnknown.
	After
	// Late: ErrOutcomeUnknown, and it is not done yet: ExecuteLate does it, as a server may that a timed-out statement still waits in. A
	// read that is late is lost.
	Late
)

// Faults makes stores fail. Store, Log and Memory wrap one each; several may share a Faults. Safe for concurrent use.
type Faults struct {
	// Decide says what happens to a request: op is the lower-case name of the method, k its key, zero for methods without one. It is asked
	// for each request of a batch apart, possibly at the same time. Nil: no faults.
	Decide func(ctx context.Context, op string, k dedupe.Key) Fault

	mu   sync.Mutex
	late []func(context.Context)
}

// Store wraps s.
func (f *Faults) Store(s dedupe.Store) dedupe.Store { return &faultyStore{f, s} }

// Log wraps l; its identity is that of l.
func (f *Faults) Log(l dedupe.Log) dedupe.Log { return &faultyLog{faultyStore{f, l}, l} }

// Memory wraps m.
func (f *Faults) Memory(m dedupe.Memory) dedupe.Memory { return &faultyMemory{faultyStore{f, m}, m} }

// ExecuteLate does what was Late until now, in the order in which it was asked for, and returns how many calls that were. What the
// store answers is lost.
func (f *Faults) ExecuteLate(ctx context.Context) int {
	f.mu.Lock()
	calls := f.late
	f.late = nil
	f.mu.Unlock()
	for _, call := range calls {
		call(ctx)
	}
	return len(calls)
}

func (f *Faults) decide(ctx context.Context, op string, k dedupe.Key) Fault {
	if f.Decide == nil {
		return None
	}
	return f.Decide(ctx, op, k)
}

func (f *Faults) later(call func(context.Context)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late = append(f.late, call)
}

// fails is the error of a request that meets fault; nil: none.
func fails(fault Fault, op string, k dedupe.Key) error {
	switch fault {
	case Before:
		return fmt.Errorf("storetest: %s %v: %w: made to fail before it", op, k, dedupe.ErrUnavailable)
	case After, Late:
		return fmt.Errorf("storetest: %s %v: %w: made to lose its reply", op, k, dedupe.ErrOutcomeUnknown)
	default:
		return nil
	}
}

// batch sends what is not made to fail in one call, in order, and answers the rest.
func batch[R, A any](ctx context.Context, f *Faults, op string, reqs []R, key func(R) dedupe.Key, failed func(error) A, call func(context.Context, []R) []A) []A {
	answers := make([]A, len(reqs))
	lost := make([]bool, len(reqs))
	var sent, late []R
	var at []int
	for i, r := range reqs {
		fault := f.decide(ctx, op, key(r))
		if err := fails(fault, op, key(r)); err != nil {
			answers[i], lost[i] = failed(err), true
		}
		switch fault {
		case None, After:
			sent, at = append(sent, r), append(at, i)
		case Late:
			late = append(late, r)
		}
	}
	if len(late) > 0 {
		f.later(func(ctx context.Context) { call(ctx, late) })
	}
	if len(sent) > 0 {
		for j, answer := range call(ctx, sent) {
			if !lost[at[j]] {
				answers[at[j]] = answer
			}
		}
	}
	return answers
}

// single is a call that is not a batch.
func single[A any](ctx context.Context, f *Faults, op string, k dedupe.Key, call func(context.Context) (A, error)) (A, error) {
	var nothing A
	fault := f.decide(ctx, op, k)
	err := fails(fault, op, k)
	switch fault {
	case None:
		return call(ctx)
	case After:
		call(ctx) //nolint:errcheck // the reply is lost, which is the fault
	case Late:
		f.later(func(ctx context.Context) { call(ctx) }) //nolint:errcheck // as above
	}
	return nothing, err
}

// without makes a call that answers only an error one for single.
func without(call func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, call(ctx) }
}

func failedReply(err error) dedupe.Reply { return dedupe.Reply{Err: err} }

type faultyStore struct {
	f *Faults
	s dedupe.Store
}

func (w *faultyStore) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	return batch(ctx, w.f, "claim", reqs, func(r dedupe.ClaimRequest) dedupe.Key { return r.Key }, failedReply, w.s.Claim)
}

func (w *faultyStore) Renew(ctx context.Context, reqs []dedupe.RenewRequest) []dedupe.Reply {
	return batch(ctx, w.f, "renew", reqs, func(r dedupe.RenewRequest) dedupe.Key { return r.Key }, failedReply, w.s.Renew)
}

func (w *faultyStore) Complete(ctx context.Context, reqs []dedupe.CompleteRequest) []dedupe.Reply {
	return batch(ctx, w.f, "complete", reqs, func(r dedupe.CompleteRequest) dedupe.Key { return r.Key }, failedReply, w.s.Complete)
}

func (w *faultyStore) Release(ctx context.Context, reqs []dedupe.ReleaseRequest) []dedupe.Reply {
	return batch(ctx, w.f, "release", reqs, func(r dedupe.ReleaseRequest) dedupe.Key { return r.Key }, failedReply, w.s.Release)
}

func (w *faultyStore) Bury(ctx context.Context, reqs []dedupe.BuryRequest) []dedupe.Reply {
	return batch(ctx, w.f, "bury", reqs, func(r dedupe.BuryRequest) dedupe.Key { return r.Key }, failedReply, w.s.Bury)
}

func (w *faultyStore) Learn(ctx context.Context, recs []dedupe.Record, retention time.Duration) []error {
	return batch(ctx, w.f, "learn", recs, func(r dedupe.Record) dedupe.Key { return r.Key }, func(err error) error { return err },
		func(ctx context.Context, recs []dedupe.Record) []error { return w.s.Learn(ctx, recs, retention) })
}

// Inspect fails if it would for any of its keys.
func (w *faultyStore) Inspect(ctx context.Context, keys []dedupe.Key) ([]dedupe.Record, error) {
	for _, k := range keys {
		if err := fails(w.f.decide(ctx, "inspect", k), "inspect", k); err != nil {
			return nil, err
		}
	}
	return w.s.Inspect(ctx, keys)
}

func (w *faultyStore) Reopen(ctx context.Context, k dedupe.Key, a dedupe.Audit) (dedupe.Record, error) {
	return single(ctx, w.f, "reopen", k, func(ctx context.Context) (dedupe.Record, error) { return w.s.Reopen(ctx, k, a) })
}

func (w *faultyStore) Forget(ctx context.Context, k dedupe.Key, a dedupe.Audit) error {
	_, err := single(ctx, w.f, "forget", k, without(func(ctx context.Context) error { return w.s.Forget(ctx, k, a) }))
	return err
}

func (w *faultyStore) Check(ctx context.Context, env dedupe.CheckEnv) ([]dedupe.Finding, error) {
	return single(ctx, w.f, "check", dedupe.Key{}, func(ctx context.Context) ([]dedupe.Finding, error) { return w.s.Check(ctx, env) })
}

type faultyLog struct {
	faultyStore
	l dedupe.Log
}

func (w *faultyLog) Enter(ctx context.Context, s dedupe.ScopeRow) (dedupe.ScopeRow, error) {
	return single(ctx, w.f, "enter", dedupe.Key{}, func(ctx context.Context) (dedupe.ScopeRow, error) { return w.l.Enter(ctx, s) })
}

func (w *faultyLog) ChangeMode(ctx context.Context, scope string, m dedupe.Mode, a dedupe.Audit) error {
	_, err := single(ctx, w.f, "changemode", dedupe.Key{}, without(func(ctx context.Context) error { return w.l.ChangeMode(ctx, scope, m, a) }))
	return err
}

func (w *faultyLog) Incarnation(ctx context.Context) (dedupe.Incarnation, error) {
	return single(ctx, w.f, "incarnation", dedupe.Key{}, w.l.Incarnation)
}

func (w *faultyLog) Restored(ctx context.Context, a dedupe.Audit) (dedupe.Incarnation, error) {
	return single(ctx, w.f, "restored", dedupe.Key{}, func(ctx context.Context) (dedupe.Incarnation, error) { return w.l.Restored(ctx, a) })
}

func (w *faultyLog) Purge(ctx context.Context, scope string, staleAfter time.Duration, limit int) (int, error) {
	return single(ctx, w.f, "purge", dedupe.Key{}, func(ctx context.Context) (int, error) { return w.l.Purge(ctx, scope, staleAfter, limit) })
}

func (w *faultyLog) Identity() any { return w.l.Identity() }

type faultyMemory struct {
	faultyStore
	m dedupe.Memory
}

func (w *faultyMemory) Remember(ctx context.Context, scope string) (bool, error) {
	return single(ctx, w.f, "remember", dedupe.Key{}, func(ctx context.Context) (bool, error) { return w.m.Remember(ctx, scope) })
}

func (w *faultyMemory) NoteMode(ctx context.Context, scope string, m dedupe.Mode) (dedupe.Mode, error) {
	return single(ctx, w.f, "notemode", dedupe.Key{}, func(ctx context.Context) (dedupe.Mode, error) { return w.m.NoteMode(ctx, scope, m) })
}

func (w *faultyMemory) ChangeMode(ctx context.Context, scope string, m dedupe.Mode, a dedupe.Audit) error {
	_, err := single(ctx, w.f, "changemode", dedupe.Key{}, without(func(ctx context.Context) error { return w.m.ChangeMode(ctx, scope, m, a) }))
	return err
}
