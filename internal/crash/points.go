// Package crash names the points of a message's way at which a process may die, and wraps stores and dead letters so that a test
// can make it die there.
//
// A point is "<who>.<operation>.before" or ".after": before means that nothing was sent, after that the answer has arrived and
// nobody has acted on it yet.
package crash

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

// Points calls the function at each point that is passed.
type Points func(point string)

// KillAt kills this process with SIGKILL when it passes point for the nth time, counted from 1. An empty point never kills.
func KillAt(point string, nth int64) Points {
	var passed atomic.Int64
	return func(at string) {
		if at == point && passed.Add(1) == nth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it cannot fail for ourselves
			select {}
		}
	}
}

func around[Q, R any](p Points, who, op string, reqs []Q, call func([]Q) R) R {
	p(strings.Join([]string{who, op, "before"}, "."))
	r := call(reqs)
	p(strings.Join([]string{who, op, "after"}, "."))
	return r
}

// Store passes the points "<who>.claim", "renew", "complete", "release", "bury" and "learn" of s.
func Store(s dedupe.Store, who string, p Points) dedupe.Store { return &store{s, who, p} }

// Log is Store for a log.
func Log(l dedupe.Log, who string, p Points) dedupe.Log { return &log{l, &store{l, who, p}} }

type store struct {
	dedupe.Store
	who string
	p   Points
}

func (s *store) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	return around(s.p, s.who, "claim", reqs, func(r []dedupe.ClaimRequest) []dedupe.Reply { return s.Store.Claim(ctx, r) })
}

func (s *store) Renew(ctx context.Context, reqs []dedupe.RenewRequest) []dedupe.Reply {
	return around(s.p, s.who, "renew", reqs, func(r []dedupe.RenewRequest) []dedupe.Reply { return s.Store.Renew(ctx, r) })
}

func (s *store) Complete(ctx context.Context, reqs []dedupe.CompleteRequest) []dedupe.Reply {
	return around(s.p, s.who, "complete", reqs, func(r []dedupe.CompleteRequest) []dedupe.Reply { return s.Store.Complete(ctx, r) })
}

func (s *store) Release(ctx context.Context, reqs []dedupe.ReleaseRequest) []dedupe.Reply {
	return around(s.p, s.who, "release", reqs, func(r []dedupe.ReleaseRequest) []dedupe.Reply { return s.Store.Release(ctx, r) })
}

func (s *store) Bury(ctx context.Context, reqs []dedupe.BuryRequest) []dedupe.Reply {
	return around(s.p, s.who, "bury", reqs, func(r []dedupe.BuryRequest) []dedupe.Reply { return s.Store.Bury(ctx, r) })
}

func (s *store) Learn(ctx context.Context, recs []dedupe.Record, retention time.Duration) []error {
	return around(s.p, s.who, "learn", recs, func(r []dedupe.Record) []error { return s.Store.Learn(ctx, r, retention) })
}

// log takes what a Store has from store, and the rest from Log.
type log struct {
	dedupe.Log
	store *store
}

func (l *log) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	return l.store.Claim(ctx, reqs)
}

func (l *log) Renew(ctx context.Context, reqs []dedupe.RenewRequest) []dedupe.Reply {
	return l.store.Renew(ctx, reqs)
}

func (l *log) Complete(ctx context.Context, reqs []dedupe.CompleteRequest) []dedupe.Reply {
	return l.store.Complete(ctx, reqs)
}

func (l *log) Release(ctx context.Context, reqs []dedupe.ReleaseRequest) []dedupe.Reply {
	return l.store.Release(ctx, reqs)
}

func (l *log) Bury(ctx context.Context, reqs []dedupe.BuryRequest) []dedupe.Reply {
	return l.store.Bury(ctx, reqs)
}

// DeadLetters passes the points "letter.publish.before" and ".after" of d.
func DeadLetters(d consumer.DeadLetters, p Points) consumer.DeadLetters { return &letters{d, p} }

type letters struct {
	consumer.DeadLetters
	p Points
}

func (l *letters) Publish(ctx context.Context, d consumer.DeadLetter) error {
	return around(l.p, "letter", "publish", []consumer.DeadLetter{d}, func(d []consumer.DeadLetter) error { return l.DeadLetters.Publish(ctx, d[0]) })
}
