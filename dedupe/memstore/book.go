package memstore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// row is a key's Record and the two moments that a Record tells as durations or not at all.
type row struct {
	dedupe.Record
	leaseEnd time.Time // of a claimed key
	forgetAt time.Time // a Store knows nothing about the key from then on; a Log does not look at it
}

// book is what a Store and a Log share: rows, the rules for changing them (rules.go), and the operations that both answer alike.
type book struct {
	clock func() time.Time
	isLog bool

	mu          sync.Mutex
	rows        map[dedupe.Key]row
	incarnation dedupe.Incarnation // of a log; a Store believes what its callers say
}

// at is a book at one moment, its mutex held.
type at struct {
	*book
	now time.Time
}

func (b *book) lock() (at, func()) {
	b.mu.Lock()
	return at{b, b.clock()}, b.mu.Unlock
}

// see is what is known about k by someone who knows the log as inc. An absent key has the zero state; its fence is that of the row
// that no longer counts, if there is one.
func (b at) see(k dedupe.Key, inc dedupe.Incarnation) row {
	r, found := b.rows[k]
	absent := row{Record: dedupe.Record{Key: k}}
	switch {
	case !found, !b.isLog && !b.now.Before(r.forgetAt):
		return absent
	case !b.isLog && (r.State == dedupe.StateDone || r.State == dedupe.StateDead) && r.Incarnation != inc:
		absent.Fence = r.Fence
		return absent
	}
	return r
}

// record is what a caller is told about r.
func (b at) record(r row) dedupe.Record {
	rec := r.Record
	rec.Result = bytes.Clone(r.Result)
	if rec.State == dedupe.StateClaimed {
		rec.LeaseLeft = r.leaseEnd.Sub(b.now)
	}
	if b.isLog && rec.State == dedupe.StateDone {
		rec.Incarnation = b.incarnation
	}
	return rec
}

// write puts r in place of what was there.
func (b at) write(r row) {
	if r.CreatedAt.IsZero() {
		r.CreatedAt = b.now
	}
	r.UpdatedAt = b.now
	b.rows[r.Key] = r
}

// each answers the requests in order, none of them if ctx has ended.
func each[R any](ctx context.Context, b *book, op string, reqs []R, key func(R) dedupe.Key, answer func(at, R) dedupe.Reply) []dedupe.Reply {
	replies := make([]dedupe.Reply, len(reqs))
	view, unlock := b.lock()
	defer unlock()
	for i, r := range reqs {
		if err := ended(ctx); err != nil {
			replies[i].Err = err
		} else {
			replies[i] = answer(view, r)
		}
		replies[i].Err = opError(op, key(r), replies[i].Err)
	}
	return replies
}

// Claim implements dedupe.Store.
func (b *book) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	return each(ctx, b, "claim", reqs, func(r dedupe.ClaimRequest) dedupe.Key { return r.Key }, at.claim)
}

// Renew implements dedupe.Store.
func (b *book) Renew(ctx context.Context, reqs []dedupe.RenewRequest) []dedupe.Reply {
	return each(ctx, b, "renew", reqs, func(r dedupe.RenewRequest) dedupe.Key { return r.Key }, at.renew)
}

// Complete implements dedupe.Store.
func (b *book) Complete(ctx context.Context, reqs []dedupe.CompleteRequest) []dedupe.Reply {
	return each(ctx, b, "complete", reqs, func(r dedupe.CompleteRequest) dedupe.Key { return r.Key }, at.complete)
}

// Release implements dedupe.Store.
func (b *book) Release(ctx context.Context, reqs []dedupe.ReleaseRequest) []dedupe.Reply {
	return each(ctx, b, "release", reqs, func(r dedupe.ReleaseRequest) dedupe.Key { return r.Key }, at.release)
}

// Bury implements dedupe.Store.
func (b *book) Bury(ctx context.Context, reqs []dedupe.BuryRequest) []dedupe.Reply {
	return each(ctx, b, "bury", reqs, func(r dedupe.BuryRequest) dedupe.Key { return r.Key }, at.bury)
}

// Inspect implements dedupe.Store.
func (b *book) Inspect(ctx context.Context, keys []dedupe.Key) ([]dedupe.Record, error) {
	if err := ended(ctx); err != nil {
		return nil, fmt.Errorf("memstore: inspect: %w", err)
	}
	view, unlock := b.lock()
	defer unlock()
	recs := make([]dedupe.Record, len(keys))
	for i, k := range keys {
		recs[i] = view.record(view.see(k, b.rows[k].Incarnation))
	}
	return recs, nil
}

// Reopen implements dedupe.Store.
func (b *book) Reopen(ctx context.Context, k dedupe.Key, a dedupe.Audit) (dedupe.Record, error) {
	if err := ended(ctx); err != nil {
		return dedupe.Record{}, opError("reopen", k, err)
	}
	view, unlock := b.lock()
	defer unlock()
	was := view.see(k, b.rows[k].Incarnation)
	if was.State != dedupe.StateDead {
		return view.record(was), opError("reopen", k, dedupe.ErrNotDead)
	}
	next := view.takenUp(was)
	next.State, next.Reason = dedupe.StateFree, a.By+": "+a.Reason
	view.write(next)
	return view.record(view.rows[k]), nil
}

// Forget implements dedupe.Store.
func (b *book) Forget(ctx context.Context, k dedupe.Key, _ dedupe.Audit) error {
	if err := ended(ctx); err != nil {
		return opError("forget", k, err)
	}
	view, unlock := b.lock()
	defer unlock()
	was := view.see(k, b.rows[k].Incarnation)
	if left := was.leaseEnd.Sub(view.now); was.State == dedupe.StateClaimed && left > 0 {
		return opError("forget", k, &dedupe.BusyError{Key: k, RetryIn: left})
	}
	delete(b.rows, k)
	return nil
}

// Check implements dedupe.Store: a map has no settings, so nothing is ever found.
func (b *book) Check(ctx context.Context, _ dedupe.CheckEnv) ([]dedupe.Finding, error) {
	if err := ended(ctx); err != nil {
		return nil, fmt.Errorf("memstore: check: %w", err)
	}
	return nil, nil
}

// copied is the rows as they are now. Rows are replaced, never changed, so the copy need not go deeper.
func (b at) copied() map[dedupe.Key]row { return maps.Clone(b.rows) }

// ended is ErrUnavailable with the cause if ctx has ended.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", dedupe.ErrUnavailable, context.Cause(ctx))
}

// opError is the one shape of our errors.
func opError(op string, k dedupe.Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("memstore: %s %v: %w", op, k, err)
}
