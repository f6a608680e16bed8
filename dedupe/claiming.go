package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The steps of Do, for runtimes. Whoever gets Claimed must end with Complete, Release or Bury.

// Claim asks for the right to work on a delivery. With a nil error Outcome.Verdict is Claimed, Busy, Done, Dead or Conflict: values
// here, not errors. Conflict is also the verdict for a dead key with another fingerprint, when the delivery is no marked copy: its
// letter lies, this one is another. Errors: ErrInvalidID, ErrNested, ErrUnavailable, ErrOutcomeUnknown, ErrMemoryLost,
// ErrWrongMode, ErrClosed; nothing ran and nothing may be acknowledged.
func (g *Guard) Claim(ctx context.Context, d Delivery) (Outcome, error) {
	outs, errs := g.ClaimBatch(ctx, []Delivery{d})
	return outs[0], errs[0]
}

// attempt is one delivery on its way to a verdict.
type attempt struct {
	d       Delivery
	key     Key
	req     ClaimRequest
	out     Outcome
	err     error
	decided bool

	redis    Reply // zero when Redis was not asked
	inStore  bool  // Redis holds, or may hold, a claim of ours
	phantom  bool  // the authority may hold a claim of our owner without our knowing
	kept     bool  // phantom: it did hold the claim once
	degraded bool
	start    time.Time // of the question, for hooks
	sent     time.Time // of the last statement that may have made a claim: its lease counts from here
}

func (a *attempt) decide(v Verdict, rec Record) {
	rec.Key = a.key
	if (v == Done || v == Dead && !a.d.Redriven) && rec.Fingerprint.Differs(a.d.Fingerprint) {
		v = Conflict
	}
	a.out, a.decided = Outcome{Verdict: v, Record: rec, Degraded: a.degraded}, true
}

func (a *attempt) fail(err error) { a.err, a.decided = err, true }

// ClaimBatch answers delivery i in outcome i and errs[i]; the same id twice gives the first one's verdict, and Busy to the others if it
// was Claimed, or if it was Dead and the other is a marked copy.
func (g *Guard) ClaimBatch(ctx context.Context, ds []Delivery) (outs []Outcome, errs []error) {
	as := make([]*attempt, len(ds))
	first := map[Key]*attempt{}
	var open []*attempt
	enterErr := g.enter(ctx)
	for i, d := range ds {
		a := g.newAttempt(ctx, d)
		as[i] = a
		switch prior := first[a.key]; {
		case a.decided:
		case enterErr != nil:
			a.fail(enterErr)
		case prior != nil: // answered below, once the first is known
		case !g.alive():
			a.fail(opError("claim", a.key, ErrClosed))
		default:
			first[a.key] = a
			open = append(open, a)
		}
	}
	g.completeGivenUp(ctx, open)
	for _, a := range undecided(open) {
		if old, kept := g.unsettled.takeOwner(a.key); old != "" {
			a.req.Owner, a.phantom, a.kept = old, true, kept
		}
	}
	g.askRedis(ctx, undecided(open))
	if ctx.Err() != nil {
		for _, a := range undecided(open) {
			g.giveUp(a, fmt.Errorf("%w: %w", ErrOutcomeUnknown, context.Cause(ctx)))
		}
	}
	if g.cfg.Mode == Logged {
		g.askLog(ctx, undecided(open))
	}
	for _, a := range undecided(open) {
		g.claimed(a)
	}
	for _, a := range open {
		if a.out.Verdict == Claimed {
			continue
		}
		g.inFlight.Done()
		if a.phantom {
			g.unsettled.change(a.key, func(m *memory) { m.owner, m.kept = a.req.Owner, a.kept })
		}
	}
	outs, errs = make([]Outcome, len(ds)), make([]error, len(ds))
	for i, a := range as {
		if prior := first[a.key]; !a.decided && prior != a {
			g.decideAs(a, prior)
		}
		outs[i], errs[i] = a.out, a.err
		g.verdict(ctx, a.key, a.out, a.err, a.start)
	}
	return outs, errs
}

// decideAs answers the second delivery of a key in a call by what the first one met.
func (g *Guard) decideAs(a, first *attempt) {
	rec := first.out.Record
	a.degraded = first.degraded
	switch {
	case first.err != nil:
		a.fail(first.err)
	case first.out.Verdict == Claimed:
		a.decide(Busy, Record{State: StateClaimed, LeaseLeft: g.cfg.Lease})
	case rec.State == StateDone:
		a.decide(Done, rec)
	case rec.State == StateDead && a.d.Redriven: // for it Dead is free: asked again when the first has ended
		a.decide(Busy, rec)
	case rec.State == StateDead:
		a.decide(Dead, rec)
	default:
		a.decide(first.out.Verdict, rec)
	}
}

func undecided(as []*attempt) (open []*attempt) {
	for _, a := range as {
		if !a.decided {
			open = append(open, a)
		}
	}
	return open
}

func (g *Guard) newAttempt(ctx context.Context, d Delivery) *attempt {
	a := &attempt{d: d, start: time.Now()}
	k, err := g.Key(d.Namespace, d.ID)
	if err != nil {
		a.fail(opErrorNoKey("claim", err))
		return a
	}
	a.key = k
	switch {
	case g.isClosed():
		a.fail(opError("claim", k, ErrClosed))
	case d.Fingerprint.IsZero():
		a.fail(opError("claim", k, fmt.Errorf("%w: Delivery.Fingerprint is not set; use FingerprintOf(body), or NoFingerprint to trust the id blindly", ErrInvalidID)))
	case g.holds(ctx, k):
		a.fail(opError("claim", k, ErrNested))
	}
	a.req = ClaimRequest{
		Key: k, Owner: newOwner(), Fingerprint: d.Fingerprint, Lease: g.cfg.Lease, Retention: g.cfg.Retention,
		Redriven: d.Redriven, Alone: d.Alone, Incarnation: g.incarnation(),
	}
	if !g.cfg.DropOriginal {
		a.req.Original = d.original()
	}
	return a
}

// completeGivenUp ends claims of this process whose handler had returned success and whose completion was given up in an outage: the
// handler must not run again.
func (g *Guard) completeGivenUp(ctx context.Context, as []*attempt) {
	for _, a := range as {
		c := g.unsettled.claimOf(a.key)
		if c == nil {
			continue
		}
		out, err := g.completeOnce(ctx, c)
		switch {
		case err == nil:
			g.unsettled.change(a.key, func(m *memory) { *m = memory{} })
			if out.Verdict == Claimed {
				out.Verdict, out.Record.State = Done, StateDone
			}
			a.decide(out.Verdict, out.Record)
		case errors.Is(err, ErrStale), errors.Is(err, ErrNotApplied), errors.Is(err, errMayCommitYet):
			// taken over meanwhile, not applied, or to be found out by the next insert: a delivery like any other
			g.unsettled.change(a.key, func(m *memory) { *m = memory{} })
		default:
			a.fail(err)
		}
	}
}

// askRedis asks the fast path. In RedisOnly its answer decides; otherwise only Done and, for a lease, Busy end the question.
func (g *Guard) askRedis(ctx context.Context, as []*attempt) {
	if g.cfg.Store == nil || len(as) == 0 {
		return
	}
	reqs := make([]ClaimRequest, len(as))
	for i, a := range as {
		reqs[i], a.sent = a.req, time.Now()
	}
	reps := ask(ctx, g, storeRedis, opClaim, g.cfg.Store.Claim, reqs...)
	for i, a := range as {
		a.redis = reps[i]
		if g.cfg.Mode == RedisOnly {
			g.redisDecides(ctx, a)
		} else {
			g.redisAdvises(ctx, a)
		}
	}
}

func (g *Guard) redisDecides(ctx context.Context, a *attempt) {
	r := a.redis
	if errors.Is(r.Err, ErrOutcomeUnknown) {
		r = ask(ctx, g, storeRedis, opClaim, g.cfg.Store.Claim, a.req)[0]
	}
	if errors.Is(r.Err, ErrMemoryLost) {
		g.anomaly(ctx, "memory-lost", a.key, r.Err)
	}
	if errors.Is(r.Err, ErrMemoryLost) && g.cfg.OnMemoryLoss == ContinueOnMemoryLoss {
		if err := g.remember(ctx); err != nil {
			a.fail(opError("claim", a.key, err))
			return
		}
		r = ask(ctx, g, storeRedis, opClaim, g.cfg.Store.Claim, a.req)[0]
	}
	a.redis = r
	a.phantom = a.phantom && r.Err != nil
	switch {
	case r.Err != nil:
		g.giveUp(a, r.Err)
	case r.Verdict == Claimed:
		a.inStore = true
	default:
		a.decide(r.Verdict, r.Record)
	}
}

func (g *Guard) redisAdvises(ctx context.Context, a *attempt) {
	r := a.redis
	if r.Err != nil || r.Verdict != Busy {
		g.unsettled.notBusy(a.key)
	}
	switch {
	case r.Err != nil:
		a.degraded = true
		a.inStore = errors.Is(r.Err, ErrOutcomeUnknown)
	case r.Verdict == Claimed:
		a.inStore = true
	case r.Verdict == Busy:
		if left := g.cfg.Lease - time.Since(g.unsettled.firstBusy(a.key)); left > 0 {
			r.Record.LeaseLeft = min(r.Record.LeaseLeft, left)
			a.decide(Busy, r.Record)
		}
	case r.Verdict == Done && !r.Record.Fingerprint.Differs(a.d.Fingerprint) && g.believed(ctx, r.Record):
		a.decide(Done, r.Record)
	case g.cfg.Mode == Transactional: // Dead, or a Done that needs a second look: no claim in the log will ask for us
		g.confirm(ctx, a)
	}
}

// believed says whether Redis's Done is of the log's present life, which the log's own heartbeat tells.
func (g *Guard) believed(ctx context.Context, rec Record) bool {
	start := time.Now()
	inc, err := g.cfg.Log.Incarnation(ctx)
	if err != nil {
		g.storeCalled(ctx, storeLog, "incarnation", 1, start, err)
		return false
	}
	g.known.Store(inc)
	return rec.Incarnation == inc && inc != ""
}

// confirm asks the log what Redis says is settled.
func (g *Guard) confirm(ctx context.Context, a *attempt) {
	rec, err := g.inspectLog(ctx, a.key)
	if err != nil {
		a.fail(err)
		return
	}
	switch {
	case rec.State == StateDone:
		a.decide(Done, rec)
		g.learn(ctx, rec)
	case rec.State == StateDead && !a.d.Redriven:
		dead, err := g.deadNow(ctx, rec)
		if err != nil {
			a.fail(opError("claim", a.key, err))
		} else if dead {
			a.decide(Dead, rec)
		}
	}
}

// deadNow says whether a dead row is of the log's present life: others are free for all.
func (g *Guard) deadNow(ctx context.Context, rec Record) (bool, error) {
	if rec.State != StateDead {
		return false, nil
	}
	inc, err := g.cfg.Log.Incarnation(ctx)
	if err != nil {
		return false, err
	}
	g.known.Store(inc)
	return rec.Incarnation == inc, nil
}

// askLog makes the claims that decide in Logged mode.
func (g *Guard) askLog(ctx context.Context, as []*attempt) {
	if len(as) == 0 {
		return
	}
	reqs := make([]ClaimRequest, len(as))
	for i, a := range as {
		reqs[i], a.sent = a.req, time.Now()
	}
	reps := ask(ctx, g, storeLog, opClaim, g.cfg.Log.Claim, reqs...)
	var told []Record
	for i, a := range as {
		r := reps[i]
		if errors.Is(r.Err, ErrOutcomeUnknown) && ctx.Err() == nil { // the same statement, the same owner
			r = ask(ctx, g, storeLog, opClaim, g.cfg.Log.Claim, a.req)[0]
		}
		a.phantom = a.phantom && r.Err != nil
		switch {
		case r.Err != nil:
			g.giveUp(a, r.Err)
			if !a.phantom && a.inStore {
				g.releaseStore(ctx, Grip{Key: a.key, Owner: a.req.Owner}, ReleaseRequest{})
			}
		case r.Verdict == Claimed:
			a.redis = r // the log's counts are the ones that count
			a.req.Incarnation = r.Record.Incarnation
		default:
			a.decide(r.Verdict, r.Record)
			told = append(told, r.Record)
			if r.Verdict == Busy { // the log was asked: Redis may be believed for another lease
				g.unsettled.notBusy(a.key)
			}
		}
	}
	g.learn(ctx, told...)
}

// giveUp ends an attempt without an answer. A claim that may exist is asked for with the same owner by the next delivery.
func (g *Guard) giveUp(a *attempt, err error) {
	a.phantom = a.phantom || errors.Is(err, ErrOutcomeUnknown)
	a.fail(opError("claim", a.key, err))
}

// claimed makes the claim of an attempt that nothing stands against.
func (g *Guard) claimed(a *attempt) {
	g.unsettled.change(a.key, func(m *memory) { *m = memory{} })
	c := &Claim{
		guard: g, key: a.key, delivery: a.d, owner: a.req.Owner, incarnation: a.req.Incarnation,
		degraded: a.degraded, inStore: a.inStore, sent: a.sent,
	}
	if a.redis.Err == nil && a.redis.Verdict == Claimed {
		c.rec, c.known = a.redis.Record, true
	}
	c.rec.Key, c.rec.Owner = a.key, a.req.Owner
	a.out, a.decided = Outcome{Verdict: Claimed, Claim: c, Record: c.rec, Degraded: a.degraded}, true
}
