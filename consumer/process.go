package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Process takes one delivery to its end: it stores the dead letter itself (publish, then bury, then Ack), so an adapter only has to
// obey the Disposition. It waits and tries again in place as the policy says, and returns early with Again when ctx ends or the drain
// begins (WithDrain). dl may be nil: no dead letters. Not to be called by a handler of the same pipeline: a message that has to run alone
// waits for all others, and they would wait for it.
func (p *Pipeline) Process(ctx context.Context, m *Message, dl DeadLetters) Disposition {
	start := time.Now()
	t, d, ok := p.take(ctx, m, dl)
	if ok {
		d = t.process(ctx)
	}
	p.settled(ctx, m, d, time.Since(start))
	return d
}

// task is one message on its way through the pipeline.
type task struct {
	p  *Pipeline
	m  *Message
	dl DeadLetters
	d  dedupe.Delivery

	start  time.Time
	busy   time.Time     // since when another owner has it; zero: it has not
	busyIn time.Duration // the last wait for it
	runs   int           // failures in this call, where nobody else counts them
}

// take finds out who m is. False: it ends here, by the disposition.
func (p *Pipeline) take(ctx context.Context, m *Message, dl DeadLetters) (*task, Disposition, bool) {
	if err := stopping(ctx); err != nil {
		return nil, again(Draining, 0, err), false
	}
	t := &task{p: p, m: m, dl: dl, start: time.Now()}
	if err := p.identify(m); err != nil {
		return nil, t.missingID(ctx, err), false
	}
	var err error
	if t.d, err = p.delivery(m); err != nil {
		return nil, t.letter(ctx, ReasonUndecodable, err), false
	}
	return t, Disposition{}, true
}

func (t *task) missingID(ctx context.Context, err error) Disposition {
	if t.p.cfg.Policy.MissingID == MissingIDHalt {
		return halt(fmt.Errorf("%w: %v: %w", ErrMissingID, t.m.Position, err))
	}
	return t.letter(ctx, ReasonMissingID, err)
}

// process tries in place until the message is settled or has to go back.
func (t *task) process(ctx context.Context) Disposition {
	for {
		d, here := t.attempt(ctx)
		if !here {
			return d
		}
		if err := sleep(ctx, d.After); err != nil {
			return Disposition{Action: Again, Why: Draining, Tier: -1, Failures: d.Failures, Verdict: d.Verdict, Err: errors.Join(err, d.Err)}
		}
	}
}

// attempt makes one claim and ends it. here: After from now the message is to be tried again in place, holding nothing meanwhile.
func (t *task) attempt(ctx context.Context) (d Disposition, here bool) {
	if err := t.p.enter(ctx, t.d.Alone); errors.Is(err, errCrowded) {
		return again(WhyBusy, t.p.aloneWait(), err), false
	} else if err != nil {
		return again(Draining, 0, err), false
	}
	defer t.p.gate.leave()
	if t.d.Alone {
		defer t.p.gate.overdue(t.p.aloneWait())()
	}
	out, err := t.p.cfg.Guard.Claim(ctx, t.d)
	switch {
	case err != nil:
		return t.unanswered(ctx, err)
	case out.Verdict != dedupe.Claimed:
		return t.met(ctx, out)
	}
	c := out.Claim
	if d, here, ends := t.killer(ctx, c); ends {
		return d, here
	}
	switch why, doomed, err := t.doomed(ctx, c); {
	case err != nil:
		t.handBack(ctx, c)
		return t.notCounted(ctx, ended{err: err}, err), false
	case doomed:
		return t.buryAtOnce(ctx, c, why), false
	}
	e, settled := t.p.handle(ctx, []*Message{t.m}, []*dedupe.Claim{c})
	defer settled()
	e, _ = e.of(0, 1)
	if e.err == nil {
		outs, errs := t.p.cfg.Guard.Complete(ctx, c)
		return t.completed(ctx, c, e, outs[0], errs[0])
	}
	return t.failed(ctx, c, e)
}

var errCrowded = errors.New("consumer: a message that has to run alone could not: a handler does not return")

// enter waits for the gate. To be alone it waits no longer than a handler may take, since all others wait for it meanwhile: one that
// never returns must not stop them for ever.
func (p *Pipeline) enter(ctx context.Context, alone bool) error {
	if !alone {
		return p.gate.enter(ctx, false)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.aloneWait(), errCrowded)
	defer cancel()
	return p.gate.enter(ctx, true)
}

// aloneWait is how long a handler may take that began before; and for as long again the others have their turn.
func (p *Pipeline) aloneWait() time.Duration {
	return p.cfg.Policy.HandlerTimeout + p.cfg.Guard.StopGrace()
}

const (
	// deathsToBeAlone is after how many deaths of its owners a message runs with nothing beside it.
	deathsToBeAlone = 2
	// deathsAlone is how many deaths of owners that ran nothing else prove that the message kills its process.
	deathsAlone = 3
)

var errKills = errors.New("consumer: processes that ran this message alone died")

// killer ends a claim of a message whose owners died too often. The first deaths may be a neighbour's fault, so it is handed back,
// uncounted, and claimed again alone.
func (t *task) killer(ctx context.Context, c *dedupe.Claim) (d Disposition, here, ends bool) {
	all, alone := c.Deaths()
	switch {
	case alone >= deathsAlone:
		return t.buryAtOnce(ctx, c, death{reason: ReasonKills, cause: errKills, failures: max(c.Attempt()-1, 0)}), false, true
	case all >= deathsToBeAlone && !t.d.Alone:
		t.handBack(ctx, c)
		t.d.Alone = true
		t.p.cfg.Logger.WarnContext(ctx, "message runs alone: its processes died", "key", c.Key(), "deaths", all)
		return Disposition{Tier: -1}, true, true
	}
	return Disposition{}, false, false
}

// unanswered says what a delivery without a verdict means.
func (t *task) unanswered(ctx context.Context, err error) (d Disposition, here bool) {
	stop := stopping(ctx)
	switch {
	case errors.Is(err, dedupe.ErrInvalidID):
		return t.missingID(ctx, err), false
	case dedupe.IsOutage(err) && stop != nil:
		return again(Draining, 0, errors.Join(stop, err)), false
	case dedupe.IsOutage(err) && t.p.cfg.Policy.StoreOutage == OutageProcessUnprotected:
		return t.unprotected(ctx)
	case dedupe.IsOutage(err):
		return again(Outage, t.outageDelay(), err), false
	case stop != nil && errors.Is(err, context.Cause(ctx)):
		return again(Draining, 0, err), false
	}
	return halt(err), false // ErrMemoryLost, ErrWrongMode, ErrNested, ErrClosed, and whatever a store says that repeating cannot mend
}

// met says what to do when this delivery may not run the handler.
func (t *task) met(ctx context.Context, out dedupe.Outcome) (d Disposition, here bool) {
	if out.Verdict != dedupe.Busy {
		t.busy, t.busyIn = time.Time{}, 0
	}
	switch out.Verdict {
	case dedupe.Busy:
		return t.waitBusy(out.Record.LeaseLeft)
	case dedupe.Done:
		return t.duplicate(ctx, out.Record)
	case dedupe.Dead:
		return ack(dedupe.Dead), false
	case dedupe.Conflict:
		return t.conflict(ctx), false
	}
	return halt(fmt.Errorf("consumer: guard answered %v", out.Verdict)), false
}

const (
	firstBusyWait = 25 * time.Millisecond
	maxBusyWait   = time.Second
)

// waitBusy waits in place for another owner, asking more and more seldom, and then hands the message back.
func (t *task) waitBusy(lease time.Duration) (d Disposition, here bool) {
	now := time.Now()
	if t.busy.IsZero() {
		t.busy = now
	}
	t.busyIn = min(max(2*t.busyIn, firstBusyWait), maxBusyWait)
	lease = max(lease, firstBusyWait)
	left := t.p.cfg.Policy.Busy.Wait - now.Sub(t.busy)
	if left <= 0 {
		d := again(WhyBusy, spread(min(lease, t.p.cfg.Policy.Busy.Wait), 0.2), dedupe.ErrBusy)
		d.Verdict = dedupe.Busy
		return d, false
	}
	d = again(WhyBusy, min(spread(min(t.busyIn, lease), 0.5), left), dedupe.ErrBusy)
	d.Verdict = dedupe.Busy
	return d, true
}

// duplicate shows Config.OnDuplicate what the first run stored.
func (t *task) duplicate(ctx context.Context, rec dedupe.Record) (d Disposition, here bool) {
	if t.p.cfg.OnDuplicate == nil {
		return ack(dedupe.Done), false
	}
	tctx, timeUp := context.WithTimeoutCause(ctx, t.p.cfg.Policy.HandlerTimeout, ErrHandlerTimeout)
	defer timeUp()
	err := protect(func() error { return t.p.cfg.OnDuplicate(tctx, t.m, rec) })
	if err == nil {
		return ack(dedupe.Done), false
	}
	t.runs++
	d = again(Failed, t.retryDelay(t.runs, err), err)
	d.Verdict = dedupe.Done
	return d, t.runs%t.p.cfg.Policy.Retry.InPlace != 0 && t.short(d.After)
}

// conflict: the same id with another payload. Its letter never touches the key's state.
func (t *task) conflict(ctx context.Context) Disposition {
	var d Disposition
	if t.p.cfg.Policy.Conflict == HaltOnIt {
		d = halt(fmt.Errorf("consumer: %v: %w", t.m.Position, dedupe.ErrConflict))
	} else {
		d = t.letter(ctx, ReasonConflict, dedupe.ErrConflict)
	}
	d.Verdict = dedupe.Conflict
	return d
}

// unprotected runs the handler without a claim, as the policy allows in RedisOnly during an outage. Nobody counts the failures.
func (t *task) unprotected(ctx context.Context) (d Disposition, here bool) {
	t.p.cfg.Logger.WarnContext(ctx, "processing unprotected: redis is away", "topic", t.m.Topic, "partition", t.m.Partition)
	e, settled := t.p.handle(ctx, []*Message{t.m}, nil)
	defer settled()
	e, _ = e.of(0, 1)
	switch {
	case e.err == nil:
		return ack(0), false
	case e.cancelled != nil:
		return again(Draining, 0, errors.Join(e.cancelled, e.err)), false
	case t.p.isPermanent(e.err):
		return t.letter(ctx, reasonOf(e.err), e.err), false
	}
	t.runs++
	d = again(Failed, t.retryDelay(t.runs, e.err), e.err)
	return d, t.runs%t.p.cfg.Policy.Retry.InPlace != 0 && t.short(d.After)
}

// retryDelay is how long to wait after the n-th failure, err.
func (t *task) retryDelay(n int, err error) time.Duration {
	return max(t.p.cfg.Policy.Retry.Backoff.Delay(n), retryAfter(err))
}

// outageDelay is for adapters that do not probe Ready.
func (t *task) outageDelay() time.Duration { return spread(time.Second, 0.2) }
