package storetest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/dedupe/storetest"
)

// brokenVariable names the broken store that a copy of this test binary runs the suite on.
const brokenVariable = "STORETEST_BROKEN"

// A suite that no store fails shows nothing: each broken store makes one mistake that others made, and the subtest of that name fails.
func TestRun_ABrokenStore_FailsTheSubtestThatNamesItsMistake(t *testing.T) {
	if name := os.Getenv(brokenVariable); name != "" {
		storetest.Run(t, newHarness(broken[name].open))
		return
	}
	if testing.Short() {
		t.Skip("runs this binary once for each broken store")
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			group := strings.ReplaceAll(strings.Split(b.fails, "/")[0], " ", "_")
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$/^"+group+"$")
			cmd.Env = append(os.Environ(), brokenVariable+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "the suite passes")
			require.Equal(t, 1, exit.ExitCode(), "%s", out)
			require.Contains(t, string(out), "/"+strings.ReplaceAll(b.fails, " ", "_")+" ", "%s", out)
			require.NotContains(t, string(out), "panic:")
		})
	}
}

// brokenStore says which subtest fails, and how to open the store.
type brokenStore struct {
	fails string
	open  func(now func() time.Time) dedupe.Store
}

// store is a memstore.Store with some methods changed; what is nil is not.
type store struct {
	*memstore.Store
	claim    func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply
	renew    func(s *memstore.Store, ctx context.Context, rs []dedupe.RenewRequest) []dedupe.Reply
	complete func(s *memstore.Store, ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply
	release  func(s *memstore.Store, ctx context.Context, rs []dedupe.ReleaseRequest) []dedupe.Reply
	learn    func(s *memstore.Store, ctx context.Context, recs []dedupe.Record, d time.Duration) []error
}

func (b store) Claim(ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
	if b.claim == nil {
		return b.Store.Claim(ctx, rs)
	}
	return b.claim(b.Store, ctx, rs)
}

func (b store) Renew(ctx context.Context, rs []dedupe.RenewRequest) []dedupe.Reply {
	if b.renew == nil {
		return b.Store.Renew(ctx, rs)
	}
	return b.renew(b.Store, ctx, rs)
}

func (b store) Complete(ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply {
	if b.complete == nil {
		return b.Store.Complete(ctx, rs)
	}
	return b.complete(b.Store, ctx, rs)
}

func (b store) Release(ctx context.Context, rs []dedupe.ReleaseRequest) []dedupe.Reply {
	if b.release == nil {
		return b.Store.Release(ctx, rs)
	}
	return b.release(b.Store, ctx, rs)
}

func (b store) Learn(ctx context.Context, recs []dedupe.Record, d time.Duration) []error {
	if b.learn == nil {
		return b.Store.Learn(ctx, recs, d)
	}
	return b.learn(b.Store, ctx, recs, d)
}

func opened(b store) func(now func() time.Time) dedupe.Store {
	return func(now func() time.Time) dedupe.Store {
		b.Store = memstore.NewWithClock(now)
		return b
	}
}

// log is a memstore.Log with some methods changed; what is nil is not.
type log struct {
	*memstore.Log
	ahead    time.Duration // how far the clock is ahead while it purges
	complete func(l *memstore.Log, ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply
	enter    func(l *memstore.Log, ctx context.Context, s dedupe.ScopeRow) (dedupe.ScopeRow, error)
	restored func(l *memstore.Log) (dedupe.Incarnation, error)
	purge    func(l *memstore.Log, ctx context.Context, scope string, staleAfter time.Duration, limit int) (int, error)
	learn    func(recs []dedupe.Record) []error
}

func (b *log) Complete(ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply {
	if b.complete == nil {
		return b.Log.Complete(ctx, rs)
	}
	return b.complete(b.Log, ctx, rs)
}

func (b *log) Enter(ctx context.Context, s dedupe.ScopeRow) (dedupe.ScopeRow, error) {
	if b.enter == nil {
		return b.Log.Enter(ctx, s)
	}
	return b.enter(b.Log, ctx, s)
}

func (b *log) Restored(ctx context.Context, a dedupe.Audit) (dedupe.Incarnation, error) {
	if b.restored == nil {
		return b.Log.Restored(ctx, a)
	}
	return b.restored(b.Log)
}

func (b *log) Purge(ctx context.Context, scope string, staleAfter time.Duration, limit int) (int, error) {
	if b.purge == nil {
		return b.Log.Purge(ctx, scope, staleAfter, limit)
	}
	return b.purge(b.Log, ctx, scope, staleAfter, limit)
}

func (b *log) Learn(ctx context.Context, recs []dedupe.Record, d time.Duration) []error {
	if b.learn == nil {
		return b.Log.Learn(ctx, recs, d)
	}
	return b.learn(recs)
}

func openedLog(b log) func(now func() time.Time) dedupe.Store {
	return func(now func() time.Time) dedupe.Store {
		b := b
		purge, ahead := b.purge, time.Duration(0)
		b.Log = memstore.NewLogWithClock(func() time.Time { return now().Add(ahead) })
		if b.ahead > 0 {
			b.purge = func(l *memstore.Log, ctx context.Context, scope string, staleAfter time.Duration, limit int) (int, error) {
				ahead = b.ahead
				defer func() { ahead = 0 }()
				return l.Purge(ctx, scope, staleAfter, limit)
			}
		} else {
			b.purge = purge
		}
		return &b
	}
}
