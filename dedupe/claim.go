package dedupe

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"
)

// Claim is the right to work on a key now. Handlers read it; only the Guard ends it. Safe for concurrent use.
type Claim struct {
	guard       *Guard
	key         Key
	delivery    Delivery
	owner       Owner
	rec         Record // as the authority answered
	incarnation Incarnation
	known       bool // the authority's counts are in rec
	degraded    bool
	inStore     bool // Redis holds the claim, or may hold it

	mu        sync.Mutex
	sent      time.Time // of the last claim or renewal that was answered; with a monotonic reading
	hold      *hold     // while Hold watches it
	returned  bool      // the handler has returned
	settled   bool      // no longer in flight
	result    []byte
	noEffect  bool
	recording Recording
}

// Key that is claimed.
func (c *Claim) Key() Key { return c.key }

// Owner of this attempt.
func (c *Claim) Owner() Owner { return c.owner }

// Fence is larger than that of every earlier claim of the key, as far as its store remembers: pass it to systems that can refuse an older one. Milliseconds. Zero in
// Transactional mode, where the row is the fence.
func (c *Claim) Fence() int64 {
	if c.guard.cfg.Mode == Transactional {
		return 0
	}
	return c.rec.Fence
}

// Attempt is 1 on the first run, and one more after each failure of the handler. Crashes are not in it (Deaths), nor what is not the
// handler's fault. 0 means not known yet: Transactional while Redis is away or knows nothing.
func (c *Claim) Attempt() int {
	if !c.known {
		return 0
	}
	return c.rec.Failures + 1
}

// Deaths is how often a claim of this key was taken over from an owner that died, and of those how often it ran alone.
func (c *Claim) Deaths() (all, alone int) { return c.rec.Deaths, c.rec.AloneDeaths }

// Degraded says that the fast path was not available.
func (c *Claim) Degraded() bool { return c.degraded }

// Redriven says that this delivery is a dead letter sent again.
func (c *Claim) Redriven() bool { return c.delivery.Redriven }

// SetResult keeps b for duplicates of this message; the last call wins; ErrResultTooLarge over Config.MaxResultBytes. Set before Record (or
// inside InTx) it commits with the row.
func (c *Claim) SetResult(b []byte) error {
	if limit := c.guard.cfg.MaxResultBytes; len(b) > limit {
		return opError("set result of", c.key, fmt.Errorf("%w: %d bytes, MaxResultBytes is %d", ErrResultTooLarge, len(b), limit))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result = append([]byte(nil), b...)
	return nil
}

// Result is what SetResult kept.
func (c *Claim) Result() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.result
}

// NoEffect declares, in Transactional mode, that there was nothing to do for this message, so that returning nil without a
// recorded row is not ErrNotRecorded. The guard then writes the row itself. Without effect in other modes.
func (c *Claim) NoEffect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noEffect = true
}

// Recording is what a Log reports about the row of a claim in the caller's transaction. For implementers of Log.
type Recording uint8

const (
	// NotRecorded: no row was written.
	NotRecorded Recording = iota
	// RowWritten by Record, in a transaction whose end the log cannot see: the guard looks before it completes.
	RowWritten
	// RowCommitted by InTx.
	RowCommitted
	// RowDuplicate: the row is not ours. The transaction must roll back, and the guard reads the row.
	RowDuplicate
	// RowSkipped: the row is not ours, and the log has kept the message out of a transaction of many, which may commit. The guard reads the
	// row, and a handler that returns nil has swallowed nothing.
	RowSkipped
	// CommitUnknown: the reply to the commit was lost. The guard looks.
	CommitUnknown
)

// Recordable is asked by a Log before it writes the row of c: nil, or ErrNoClaim (nil or ended claim), ErrWrongMode (not
// Transactional), ErrNotRecorded (from is not the guard's Log: a row in another log proves nothing), ErrRecorded (the commit is known already). For implementers of
// Log.
func (c *Claim) Recordable(from Log) error {
	if c == nil {
		return fmt.Errorf("dedupe: record: %w", ErrNoClaim)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.returned:
		return opError("record", c.key, fmt.Errorf("%w: the handler has returned", ErrNoClaim))
	case c.guard.cfg.Mode != Transactional:
		return opError("record", c.key, fmt.Errorf("%w: scope %q is %v; Record and InTx need transactional", ErrWrongMode, c.key.scope, c.guard.cfg.Mode))
	case from.Identity() != c.guard.cfg.Log.Identity():
		return opError("record", c.key, errOtherLog{})
	case c.recording == RowCommitted:
		return opError("record", c.key, ErrRecorded)
	}
	return nil
}

// Note is called by Log implementations only, after Recordable, with what became of the row. A transaction that was rolled back for
// certain and will be run again is noted as NotRecorded.
func (c *Claim) Note(r Recording) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recording = r
}

// notOurs says that the row was there, of whomever.
func (r Recording) notOurs() bool { return r == RowDuplicate || r == RowSkipped }

func (c *Claim) recorded() Recording {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recording
}

// Unrecorded says that a handler which succeeded with c would be told ErrNotRecorded: Transactional, no row, no NoEffect. For runtimes of
// batches: a transaction of many that rolls back takes the rows of all with it, whosever fault it was.
func (c *Claim) Unrecorded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.guard.cfg.Mode == Transactional && c.recording == NotRecorded && !c.noEffect
}

// RowToRecord is the row that a Log writes for c: done, with what is known now. For implementers of Log.
func (c *Claim) RowToRecord() CompleteRequest {
	return CompleteRequest{
		Grip:        c.grip(),
		Fingerprint: c.delivery.Fingerprint,
		Original:    c.original(),
		Result:      c.Result(),
		Retention:   c.guard.cfg.Retention,
		Unclaimed:   c.guard.cfg.Mode == Transactional,
		Redriven:    c.delivery.Redriven,
	}
}

func (c *Claim) original() string {
	if c.guard.cfg.DropOriginal {
		return ""
	}
	return c.delivery.original()
}

func (c *Claim) grip() Grip { return Grip{Key: c.key, Owner: c.owner, Incarnation: c.incarnation} }

// Holder is anything that carries its claim, such as *consumer.Message. Claim returns nil outside a handler.
type Holder interface{ Claim() *Claim }

type claimContextKey struct{}

// holding is what a handler's context carries: its claims, and what the handler around it holds.
type holding struct {
	claims []*Claim
	outer  *holding
}

func withClaims(ctx context.Context, claims []*Claim) context.Context {
	outer, _ := ctx.Value(claimContextKey{}).(*holding)
	return context.WithValue(ctx, claimContextKey{}, &holding{claims, outer})
}

// ClaimFrom returns the claim of the delivery that ctx belongs to. False outside a handler, and false in a batch handler, where
// it would be ambiguous: use the message's own claim there.
func ClaimFrom(ctx context.Context) (*Claim, bool) {
	h, _ := ctx.Value(claimContextKey{}).(*holding)
	if h == nil || len(h.claims) != 1 {
		return nil, false
	}
	return h.claims[0], true
}

// holds reports whether ctx belongs to a handler that holds k for g, or that runs inside one.
func (g *Guard) holds(ctx context.Context, k Key) bool {
	h, _ := ctx.Value(claimContextKey{}).(*holding)
	for ; h != nil; h = h.outer {
		for _, c := range h.claims {
			if c.guard == g && c.key == k {
				return true
			}
		}
	}
	return false
}

func newOwner() Owner { return Owner(rand.Text()) }

// Delivery is one arrival of a message.
type Delivery struct {
	ID          string      // the business id: the same on each redelivery, another for each other message
	Namespace   string      // apart from other ids of the scope, usually the origin topic
	Redriven    bool        // a dead letter sent again: for it, and only for it, Dead is free
	Alone       bool        // nothing else runs in this process
	Fingerprint Fingerprint // FingerprintOf(body); NoFingerprint to trust the id blindly
}

// original is what is kept of a hashed id for people.
func (d Delivery) original() string {
	if fit(d.ID) == d.ID {
		return ""
	}
	if len(d.ID) > MaxOriginalBytes {
		return d.ID[:MaxOriginalBytes]
	}
	return d.ID
}
