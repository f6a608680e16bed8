package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Inspect reads what the authority knows about a key. Get the key by Guard.Key.
func (g *Guard) Inspect(ctx context.Context, k Key) (Record, error) {
	store, name := g.authority()
	return g.inspect(ctx, name, store, k)
}

// Reopen, for tools: Dead becomes free in the log, then in Redis; Generation + 1, counts 0, fingerprint cleared. ErrNotDead otherwise, with
// the record as it is; ErrUnavailable while Redis is configured and away, with the log unchanged. A redrive does not need it: a letter sent again carries a mark.
func (g *Guard) Reopen(ctx context.Context, k Key, a Audit) (Record, error) {
	if err := g.forgetInRedis(ctx, "reopen", k, a); err != nil {
		return Record{}, err
	}
	store, _ := g.authority()
	rec, err := store.Reopen(ctx, k, a)
	if err != nil {
		return rec, opError("reopen", k, err)
	}
	return rec, g.forgetInRedis(ctx, "reopen", k, a)
}

// Forget removes a key: its next delivery is new and WILL take effect again. ErrBusy while it is claimed. ErrUnavailable while Redis is configured
// and away, with the log unchanged: a Done left there would be believed. After any error it may be called again.
//
// A delivery that read the log before, as a duplicate, may tell Redis Done afterwards, and the message would be answered as a duplicate still. So
// where deliveries of the key may be under way, call Forget again one Timeout of the stores later, before the message is sent again.
func (g *Guard) Forget(ctx context.Context, k Key, a Audit) error {
	if err := g.forgetInRedis(ctx, "forget", k, a); err != nil { // first, so that Done in Redis goes on to imply done in the log
		return err
	}
	store, _ := g.authority()
	if err := store.Forget(ctx, k, a); err != nil {
		return opError("forget", k, err)
	}
	return g.forgetInRedis(ctx, "forget", k, a) // and again: a delivery in between may have told Redis what the log still knew
}

// forgetInRedis clears what Redis answers earlier. A live claim there is of a delivery that asks the log anyway.
func (g *Guard) forgetInRedis(ctx context.Context, op string, k Key, a Audit) error {
	if g.cfg.Mode == RedisOnly || g.cfg.Store == nil {
		return nil
	}
	err := g.cfg.Store.Forget(ctx, k, a)
	switch {
	case err == nil, errors.Is(err, ErrBusy):
		return nil
	case IsOutage(err):
		err = fmt.Errorf("%w: redis does not answer, and what it knows would be believed: %w", ErrUnavailable, err)
	}
	return opError(op, k, err)
}

// Restored gives the log a new incarnation, so that what Redis and rows of dead messages remember from before is not believed. It belongs to the
// procedure of every restore of the log's database, with all processes of the scope stopped.
func (g *Guard) Restored(ctx context.Context, a Audit) error {
	if !g.cfg.Mode.hasLog() {
		return fmt.Errorf("dedupe: restored: %w: redis-only has no log", ErrWrongMode)
	}
	inc, err := g.cfg.Log.Restored(ctx, a)
	if err != nil {
		return fmt.Errorf("dedupe: restored: %w", err)
	}
	g.known.Store(inc)
	return nil
}

// PurgeBatch is how many rows PurgeEvery deletes in one statement.
const PurgeBatch = 1000

// Purge deletes at most limit rows of this scope that may be forgotten. Fewer than limit: nothing is left. RedisOnly: 0, Redis
// forgets by itself. A limit below 1 is an error.
func (g *Guard) Purge(ctx context.Context, limit int) (purged int, _ error) {
	if limit < 1 {
		return 0, fmt.Errorf("dedupe: purge: limit %d: at least 1", limit)
	}
	if !g.cfg.Mode.hasLog() {
		return 0, nil
	}
	stale := max(g.cfg.Retention, time.Duration(g.stale.Load()))
	start := time.Now()
	n, err := g.cfg.Log.Purge(ctx, g.cfg.Scope, stale, limit)
	g.storeCalled(ctx, storeLog, "purge", n, start, err)
	if err != nil {
		return n, fmt.Errorf("dedupe: purge scope %q: %w", g.cfg.Scope, err)
	}
	return n, nil
}

// PurgeEvery purges in batches of PurgeBatch, at once and then every d, until ctx ends, and then returns nil. Errors of the log are
// logged, and the next round tries again. Any number of processes may do it. A d below one second is an error.
func (g *Guard) PurgeEvery(ctx context.Context, d time.Duration) error {
	if d < time.Second {
		return fmt.Errorf("dedupe: purge every %v: at least 1s", d)
	}
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		for ctx.Err() == nil {
			n, err := g.Purge(ctx, PurgeBatch)
			if err != nil && ctx.Err() == nil {
				g.cfg.Logger.WarnContext(ctx, "purge failed, tried again at the next round", "err", err)
			}
			if err != nil || n < PurgeBatch {
				break
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Ready asks the authority whether it answers, and nothing else: nil, ErrUnavailable, ErrOutcomeUnknown or ErrMemoryLost.
// Once the scope is entered it only reads: a Redis that takes no writes, or that has lost its memory since, is ready all the same in RedisOnly.
func (g *Guard) Ready(ctx context.Context) error {
	if err := g.enter(ctx); err != nil {
		return err
	}
	var err error
	if g.cfg.Mode.hasLog() {
		_, err = g.cfg.Log.Incarnation(ctx)
	} else {
		_, err = g.cfg.Store.Inspect(ctx, []Key{{scope: g.cfg.Scope, id: "ready"}})
	}
	if err != nil {
		return fmt.Errorf("dedupe: scope %q is not ready: %w", g.cfg.Scope, err)
	}
	return nil
}
