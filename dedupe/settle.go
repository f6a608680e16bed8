package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// settling detaches the end of a claim from its caller's context, which is often cancelled just then: it goes on for StopGrace.
func (g *Guard) settling(ctx context.Context) (context.Context, context.CancelFunc) {
	sctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unwatch := context.AfterFunc(ctx, func() {
		t := time.NewTimer(g.cfg.StopGrace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(context.Cause(ctx))
		case <-sctx.Done():
		}
	})
	return sctx, func() {
		unwatch()
		cancel(context.Canceled)
	}
}

const (
	firstAskAgain = 20 * time.Millisecond
	maxAskAgain   = time.Second
)

// untilKnown calls try until it says that nothing is left to ask, or ctx ends.
func untilKnown(ctx context.Context, try func() (again bool)) {
	for wait := firstAskAgain; try(); wait = min(2*wait, maxAskAgain) {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// handlerReturned ends what a handler may do with its claim.
func (c *Claim) handlerReturned() {
	c.mu.Lock()
	h := c.hold
	c.returned = true
	c.mu.Unlock()
	if h != nil {
		h.handlerReturned()
	}
}

// settle takes the claim out of flight, whatever its end.
func (c *Claim) settle() {
	c.mu.Lock()
	first := !c.settled
	c.settled = true
	c.mu.Unlock()
	if first {
		c.guard.inFlight.Done()
	}
}

func (c *Claim) isSettled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settled
}

// Complete ends claims whose handlers returned nil, and asks again until the answer is known, or ctx (and StopGrace after it) ends.
// Outcome i and error i belong to claim i. Claimed: applied by this delivery. Done, Dead, Busy, Conflict: the row is another's; this
// delivery applied nothing (Transactional only). Errors: ErrStale (taken over; nothing was written), ErrUnavailable,
// ErrOutcomeUnknown and what the store cannot mend (given up; the next delivery in this process asks again and does not run the handler, unless only its insert can tell
// what became of an unknown commit): nothing may be acknowledged, and the claim is settled. After ErrNotRecorded (Bury, then halt) and ErrNotApplied (Fail, then Release or Bury) it is not.
func (g *Guard) Complete(ctx context.Context, claims ...*Claim) ([]Outcome, []error) {
	outs, errs := make([]Outcome, len(claims)), make([]error, len(claims))
	open := make([]int, len(claims))
	for i, c := range claims {
		c.handlerReturned()
		open[i] = i
	}
	ctx, cancel := g.settling(ctx)
	defer cancel()
	untilKnown(ctx, func() bool {
		cs := make([]*Claim, len(open))
		for j, i := range open {
			cs[j] = claims[i]
		}
		os, es := g.completeMany(ctx, cs)
		var again []int
		for j, i := range open {
			outs[i], errs[i] = os[j], es[j]
			if IsOutage(es[j]) && !errors.Is(es[j], errMayCommitYet) {
				again = append(again, i)
			}
		}
		open = again
		return len(open) > 0
	})
	for i, c := range claims {
		switch {
		case errors.Is(errs[i], errMayCommitYet):
			g.releaseStore(ctx, c.grip(), ReleaseRequest{})
			c.settle()
		case errors.Is(errs[i], ErrNotRecorded), errors.Is(errs[i], ErrNotApplied):
		case errs[i] == nil, errors.Is(errs[i], ErrStale):
			c.settle()
		default: // the handler must not run again, whatever the store's reason
			g.unsettled.change(c.key, func(m *memory) { m.claim = c })
			c.settle()
		}
	}
	return outs, errs
}

func (g *Guard) completeOnce(ctx context.Context, c *Claim) (Outcome, error) {
	outs, errs := g.completeMany(ctx, []*Claim{c})
	return outs[0], errs[0]
}

// completeMany makes one try. What was recorded says how.
func (g *Guard) completeMany(ctx context.Context, cs []*Claim) ([]Outcome, []error) {
	outs, errs := make([]Outcome, len(cs)), make([]error, len(cs))
	var write []int
	var told []Record
	for i, c := range cs {
		switch rec := c.recorded(); {
		case g.cfg.Mode != Transactional:
			write = append(write, i)
		case rec == RowCommitted:
			outs[i] = c.done(c.committedRow())
			told = append(told, outs[i].Record)
		case rec == NotRecorded && c.declaredNoEffect():
			write = append(write, i)
		case rec == NotRecorded:
			errs[i] = opError("complete", c.key, ErrNotRecorded)
		default:
			if rec == RowDuplicate {
				g.anomaly(ctx, "swallowed-duplicate", c.key, ErrDuplicate)
			}
			outs[i], errs[i] = g.look(ctx, c)
		}
	}
	if len(write) > 0 {
		store, name := g.authority()
		reqs := make([]CompleteRequest, len(write))
		for j, i := range write {
			reqs[j] = cs[i].RowToRecord()
		}
		for j, rep := range ask(ctx, g, name, "complete", store.Complete, reqs...) {
			i := write[j]
			switch {
			case rep.Err == nil:
				outs[i] = cs[i].done(rep.Record)
				told = append(told, cs[i].told(rep.Record))
			case errors.Is(rep.Err, ErrBusy) && g.cfg.Mode == Transactional: // NoEffect's row is in another's transaction
				g.releaseStore(ctx, cs[i].grip(), ReleaseRequest{})
				outs[i] = Outcome{Verdict: Busy, Record: Record{Key: cs[i].key, State: StateClaimed, LeaseLeft: retryIn(rep.Err)}, Degraded: cs[i].degraded}
			case errors.Is(rep.Err, ErrStale) && g.cfg.Mode == Transactional: // NoEffect met another's row
				outs[i], errs[i] = g.look(ctx, cs[i])
			default:
				errs[i] = opError("complete", cs[i].key, rep.Err)
			}
		}
	}
	g.learn(ctx, told...)
	return outs, errs
}

func (c *Claim) done(rec Record) Outcome {
	return Outcome{Verdict: Claimed, Claim: c, Record: rec, Degraded: c.degraded}
}

func (c *Claim) declaredNoEffect() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.noEffect
}

// committedRow is the row that InTx is known to have committed. Its incarnation was read before the row was written, never later: one
// that is too old is not believed, which costs a question; one that is too new would be believed wrongly.
func (c *Claim) committedRow() Record {
	return Record{
		Key: c.key, State: StateDone, Owner: c.owner, Generation: c.rec.Generation, Incarnation: c.incarnation,
		Fingerprint: c.delivery.Fingerprint, Original: c.original(), Result: c.Result(),
	}
}

// told is rec as Redis is to learn it from the holder of c. In Transactional mode Redis may have counted more generations than the log, which
// sees a marked copy only when something is written for it; with the log's number Redis would keep the claim for its lease.
func (c *Claim) told(rec Record) Record {
	rec.Generation = max(rec.Generation, c.rec.Generation)
	return rec
}

// errMayCommitYet: a plain read found no row, which does not prove that the server will not commit the transaction yet. Reading again
// proves it no better; the next run's insert does, because it waits for the transaction.
var errMayCommitYet = fmt.Errorf("%w: the row is not there, and its transaction may commit yet", ErrOutcomeUnknown)

// look reads the row outside of the handler's transaction and says whose it is. Transactional.
func (g *Guard) look(ctx context.Context, c *Claim) (Outcome, error) {
	rec, err := g.inspectLog(ctx, c.key)
	if err != nil {
		return Outcome{}, err
	}
	recording := c.recorded()
	if rec.State == StateDone && rec.Owner == c.owner && !recording.notOurs() && recording != NotRecorded {
		g.learn(ctx, c.told(rec))
		return c.done(rec), nil
	}
	a := &attempt{d: c.delivery, key: c.key, degraded: c.degraded}
	switch {
	case rec.State == StateDone:
		a.decide(Done, rec)
	case rec.State == StateDead:
		dead, err := g.deadNow(ctx, rec)
		if err != nil {
			return Outcome{}, opError("look at", c.key, err)
		}
		if dead && !c.delivery.Redriven {
			a.decide(Dead, rec)
		}
	case rec.State == StateClaimed && rec.LeaseLeft > 0:
		a.decide(Busy, rec)
	}
	if a.decided {
		if a.out.Verdict == Busy {
			g.releaseStore(ctx, c.grip(), ReleaseRequest{})
		} else {
			g.learn(ctx, c.told(rec))
		}
		return a.out, nil
	}
	switch recording {
	case RowWritten:
		return Outcome{}, opError("complete", c.key, ErrNotApplied)
	case CommitUnknown:
		return Outcome{}, opError("complete", c.key, errMayCommitYet)
	}
	// The row that was in our way is gone: its transaction was rolled back.
	g.releaseStore(ctx, c.grip(), ReleaseRequest{})
	a.decide(Busy, Record{State: StateFree})
	return a.out, nil
}

// Fail says what a handler's error means, before anything is settled. Claimed: the handler's own failure, and failures is their number with
// this one; the caller chooses Release or Bury. ErrNotApplied counts as that. Done (the row is committed after all, by this or another delivery), Dead, Busy,
// Conflict: the claim is settled, and the verdict says what to do. An error: it was not the handler's fault (IsOutage, or ErrLeaseLost); the caller
// releases with HandBack, and nothing counts.
func (g *Guard) Fail(ctx context.Context, c *Claim, cause error) (out Outcome, failures int, err error) {
	c.handlerReturned()
	ctx, cancel := g.settling(ctx)
	defer cancel()
	if g.cfg.Mode == Transactional {
		switch rec := c.recorded(); {
		case rec == RowCommitted:
			g.anomaly(ctx, "error-after-commit", c.key, cause)
			fallthrough
		case rec.notOurs(), rec == CommitUnknown, errors.Is(cause, ErrDuplicate):
			if errors.Is(cause, ErrDuplicate) && rec != RowCommitted {
				c.Note(RowDuplicate)
			}
			return g.failRecorded(ctx, c)
		}
	}
	if lost := c.lostLease(); lost != nil {
		return Outcome{}, 0, fmt.Errorf("%w: %w", lost, cause)
	}
	switch {
	case errors.Is(cause, ErrBusy): // such as a lock wait on the own row: another delivery is at it
		if _, err := g.release(ctx, c, false); err != nil {
			g.cfg.Logger.WarnContext(ctx, "claim not released", "key", c.key, "err", err)
		}
		c.settle()
		return Outcome{Verdict: Busy, Record: Record{Key: c.key, State: StateClaimed, LeaseLeft: retryIn(cause)}, Degraded: c.degraded}, 0, nil
	case IsOutage(cause):
		return Outcome{}, 0, cause
	}
	rec := c.rec
	if g.cfg.Mode == Transactional { // the log counts failures, and only it; this claim is none of its rows
		row, err := g.inspectLog(ctx, c.key)
		if err != nil {
			return Outcome{}, 0, err
		}
		if row.State == StateDone && row.Owner == c.owner && c.recorded() == RowWritten { // the handler's own commit, which the log did not see
			g.anomaly(ctx, "error-after-commit", c.key, cause)
			g.learn(ctx, c.told(row))
			c.settle()
			return Outcome{Verdict: Done, Record: row, Degraded: c.degraded}, 0, nil
		}
		if rec.Failures = row.Failures; row.State == StateDead { // to be taken up: counts start again
			rec.Failures = 0
		}
	}
	return Outcome{Verdict: Claimed, Claim: c, Record: rec, Degraded: c.degraded}, rec.Failures + 1, nil
}

// failRecorded is Fail where the row, not the error, says what happened.
func (g *Guard) failRecorded(ctx context.Context, c *Claim) (out Outcome, failures int, err error) {
	untilKnown(ctx, func() bool {
		if c.recorded() == RowCommitted {
			out = c.done(c.committedRow())
			g.learn(ctx, out.Record)
			return false
		}
		out, err = g.look(ctx, c)
		// An unknown commit is not waited for here: its row shows, or the next run's insert meets it.
		return IsOutage(err) && c.recorded() != CommitUnknown
	})
	if err != nil {
		return Outcome{}, 0, err
	}
	if out.Verdict == Claimed {
		out.Verdict, out.Record.State = Done, StateDone
	}
	c.settle()
	return out, 0, nil
}

func retryIn(err error) time.Duration {
	var busy *BusyError
	if errors.As(err, &busy) {
		return busy.RetryIn
	}
	return 0
}

func (c *Claim) lostLease() error {
	c.mu.Lock()
	h := c.hold
	c.mu.Unlock()
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// ReleaseReason says whether the attempt counts.
type ReleaseReason struct {
	Cause error // the handler's error; nil for a hand-back
	// HandBack: not the handler's fault (drain, outage, rebalance, busy): nothing counts.
	HandBack bool
}

// Release frees keys after their handlers have returned. failures is the number so far, as the authority counted it. ErrStale: the
// claim was taken over or settled, nothing was written, nothing counted. ErrUnavailable and ErrOutcomeUnknown: asked
// several times; perhaps not released, which costs one lease, and perhaps not counted. A claim whose commit is unknown is handed back, never
// counted, and the log is not touched: the insert of the next delivery, which is another owner's, waits for the old transaction.
func (g *Guard) Release(ctx context.Context, why ReleaseReason, claims ...*Claim) (failures []int, errs []error) {
	failures, errs = make([]int, len(claims)), make([]error, len(claims))
	ctx, cancel := g.settling(ctx)
	defer cancel()
	for i, c := range claims {
		c.handlerReturned()
		if c.isSettled() {
			failures[i], errs[i] = c.rec.Failures, opError("release", c.key, ErrStale)
			continue
		}
		failures[i], errs[i] = g.release(ctx, c, !why.HandBack)
		c.settle()
	}
	return failures, errs
}

func (g *Guard) release(ctx context.Context, c *Claim, failed bool) (int, error) {
	req := ReleaseRequest{
		Grip: c.grip(), Failed: failed, Unclaimed: g.cfg.Mode == Transactional, Fingerprint: c.delivery.Fingerprint,
		Original: c.original(), Redriven: c.delivery.Redriven, Retention: g.cfg.Retention,
	}
	if g.cfg.Mode == Transactional && (!failed || c.recorded() == CommitUnknown) { // the log knows nothing to free
		g.releaseStore(ctx, c.grip(), ReleaseRequest{})
		return c.rec.Failures, nil
	}
	store, name := g.authority()
	var rep Reply
	tries, arrived := 0, false
	untilKnown(ctx, func() bool {
		rep = ask(ctx, g, name, "release", store.Release, req)[0]
		tries++
		arrived = arrived || !errors.Is(rep.Err, ErrUnavailable) || errors.Is(rep.Err, ErrOutcomeUnknown)
		return IsOutage(rep.Err) && tries < 3
	})
	if rep.Err != nil {
		if errors.Is(rep.Err, ErrStale) && rep.Record.State >= StateDead { // such as a row that was committed after all
			g.learn(ctx, c.told(rep.Record))
		}
		if !arrived && g.cfg.Mode != Transactional { // the next delivery in this process has the claim, and nobody has died
			g.unsettled.change(c.key, func(m *memory) { m.owner, m.kept = c.owner, true })
		}
		return c.rec.Failures, opError("release", c.key, rep.Err)
	}
	if g.cfg.Mode != RedisOnly {
		g.releaseStore(ctx, c.grip(), ReleaseRequest{Failed: failed, Failures: rep.Record.Failures})
	}
	return rep.Record.Failures, nil
}

// releaseStore frees the claim in Redis where a log decides. Best effort: a claim left there costs one lease.
func (g *Guard) releaseStore(ctx context.Context, grip Grip, req ReleaseRequest) {
	if g.cfg.Store == nil || g.cfg.Mode == RedisOnly {
		return
	}
	req.Grip, req.Retention = grip, g.cfg.Retention
	rep := ask(ctx, g, storeRedis, "release", g.cfg.Store.Release, req)[0]
	if rep.Err != nil {
		g.cfg.Logger.DebugContext(ctx, "claim not released in redis", "key", grip.Key, "err", rep.Err)
	}
}

// Bury ends a claim as a dead letter, in the one order that loses nothing: it asks the authority, calls publish only if the key is
// neither Done nor (for an unmarked copy) Dead, and then writes Dead. publish returns nil only when the letter is stored durably.
//
// Dead: acknowledge. Done: acknowledge, no letter was needed. Busy: the claim is another's by now, or nobody's, and the letter
// lies; acknowledge: whatever becomes of the key, a redrive of the letter meets Done or Dead. An error: no acknowledgement; publish's own
// error, ErrStale (the claim was settled, or another's, before the letter was written), ErrUnavailable or ErrOutcomeUnknown (perhaps a
// letter lies; the next delivery may write another). After publish's error, an outage before it, or ErrBusy the claim is still to be released with HandBack.
func (g *Guard) Bury(ctx context.Context, c *Claim, reason string, publish func(context.Context) error) (Verdict, error) {
	c.handlerReturned()
	ctx, cancel := g.settling(ctx)
	defer cancel()
	if c.isSettled() {
		return 0, opError("bury", c.key, ErrStale)
	}
	store, name := g.authority()
	rec, err := g.inspect(ctx, name, store, c.key)
	if err != nil {
		return 0, err
	}
	switch rec.State {
	case StateDone:
		g.learn(ctx, c.told(rec))
		c.settle()
		return Done, nil
	case StateDead:
		dead := g.cfg.Mode == RedisOnly
		if !dead {
			if dead, err = g.deadNow(ctx, rec); err != nil {
				return 0, opError("bury", c.key, err)
			}
		}
		if dead && !c.delivery.Redriven {
			g.learn(ctx, c.told(rec))
			c.settle()
			return Dead, nil
		}
	case StateClaimed:
		if g.cfg.Mode != Transactional && rec.Owner != c.owner {
			c.settle()
			return 0, opError("bury", c.key, ErrStale)
		}
	}
	if err := publish(ctx); err != nil {
		return 0, opError("publish dead letter of", c.key, err)
	}
	return g.writeDead(ctx, c, store, name, reason)
}

// writeDead is the second half of Bury: the letter lies.
func (g *Guard) writeDead(ctx context.Context, c *Claim, store Store, name, reason string) (Verdict, error) {
	req := BuryRequest{
		Grip: c.grip(), Reason: reason, Retention: g.cfg.Retention, Unclaimed: g.cfg.Mode == Transactional,
		Fingerprint: c.delivery.Fingerprint, Original: c.original(),
	}
	var rep Reply
	untilKnown(ctx, func() bool {
		rep = ask(ctx, g, name, "bury", store.Bury, req)[0]
		return IsOutage(rep.Err) || errors.Is(rep.Err, ErrBusy)
	})
	if !errors.Is(rep.Err, ErrBusy) {
		c.settle()
	}
	switch {
	case rep.Err == nil:
		g.learn(ctx, c.told(rep.Record))
		return Dead, nil
	case errors.Is(rep.Err, ErrStale) && rep.Record.State == StateDone:
		g.learn(ctx, c.told(rep.Record))
		return Done, nil
	case errors.Is(rep.Err, ErrStale):
		return Busy, nil
	}
	return 0, opError("bury", c.key, rep.Err)
}
