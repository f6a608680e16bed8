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

// Memory passes the points "<who>.claim", "renew", "complete", "release", "bury" and "learn" of m.
func Memory(m dedupe.Memory, who string, p Points) dedupe.Memory {
	return struct {
		*writes
		restOfMemory
	}{&writes{m, who, p}, restOfMemory{m}}
}

// Log is Memory for a log.
func Log(l dedupe.Log, who string, p Points) dedupe.Log {
	return struct {
		*writes
		restOfLog
	}{&writes{l, who, p}, restOfLog{l}}
}

// What writes does not wrap is promoted from one level deeper.
type (
	restOfMemory struct{ dedupe.Memory }
	restOfLog    struct{ dedupe.Log }
)

// writes are the operations that change a claim.
type writes struct {
	to  dedupe.Store
	who string
	p   Points
}

func (w *writes) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	return around(w.p, w.who, "claim", reqs, func(r []dedupe.ClaimRequest) []dedupe.Reply { return w.to.Claim(ctx, r) })
}

func (w *writes) Renew(ctx context.Context, reqs []dedupe.RenewRequest) []dedupe.Reply {
	return around(w.p, w.who, "renew", reqs, func(r []dedupe.RenewRequest) []dedupe.Reply { return w.to.Renew(ctx, r) })
}

func (w *writes) Complete(ctx context.Context, reqs []dedupe.CompleteRequest) []dedupe.Reply {
	return around(w.p, w.who, "complete", reqs, func(r []dedupe.CompleteRequest) []dedupe.Reply { return w.to.Complete(ctx, r) })
}

func (w *writes) Release(ctx context.Context, reqs []dedupe.ReleaseRequest) []dedupe.Reply {
	return around(w.p, w.who, "release", reqs, func(r []dedupe.ReleaseRequest) []dedupe.Reply { return w.to.Release(ctx, r) })
}

func (w *writes) Bury(ctx context.Context, reqs []dedupe.BuryRequest) []dedupe.Reply {
	return around(w.p, w.who, "bury", reqs, func(r []dedupe.BuryRequest) []dedupe.Reply { return w.to.Bury(ctx, r) })
}

func (w *writes) Learn(ctx context.Context, recs []dedupe.Record, retention time.Duration) []error {
	return around(w.p, w.who, "learn", recs, func(r []dedupe.Record) []error { return w.to.Learn(ctx, r, retention) })
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
