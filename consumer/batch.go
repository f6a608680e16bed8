package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var errBehind = errors.New("consumer: an earlier message of the same id or key comes first")

// ProcessBatch is Process for many, in the order of the broker; disposition i belongs to message i. Messages of a BatchHandler run
// together, up to Batch.Max; an error that is about the whole batch splits it until the failing message is alone, and only what fails
// alone is counted. The second of two messages with the same id waits for the first one's end and is asked about then. With OrderKey a
// message that has to be tried again holds back those of its key behind it. No claim is held while anything waits.
func (p *Pipeline) ProcessBatch(ctx context.Context, ms []*Message, dl DeadLetters) []Disposition {
	b := &batch{p: p, out: make([]Disposition, len(ms))}
	for i, m := range ms {
		start := time.Now()
		t, d, ok := p.take(ctx, m, dl)
		if ok {
			b.pending = append(b.pending, &member{task: t, i: i})
			continue
		}
		b.out[i] = d
		b.halted = b.halted || d.Action == Halt
		p.settled(ctx, m, d, time.Since(start))
	}
	for len(b.pending) > 0 {
		if err := stopping(ctx); err != nil || b.halted {
			b.handAllBack(ctx, err)
			break
		}
		b.round(ctx)
		b.forget(ctx)
	}
	return b.out
}

// batch is one call of ProcessBatch. One goroutine works on it.
type batch struct {
	p       *Pipeline
	out     []Disposition
	pending []*member // in the order of the broker
	back    []*member // ended by Again: what is behind them goes back too
	halted  bool
}

// member is a message of a batch. It is new, or waits to be tried again, or has ended.
type member struct {
	*task
	i     int  // in batch.out
	aside bool // goes by itself: it may end without a run
	waits bool
	until time.Time   // waits: not before
	last  Disposition // of the last try
	ended bool
}

// single says that m does not run with others.
func (m *member) single() bool { return m.d.Alone || m.aside }

func (m *member) id() [2]string { return [2]string{m.d.Namespace, m.d.ID} }

// behind says whether m has to come after first, which is before it in the batch.
func (m *member) behind(first *member) bool {
	ordered := m.p.cfg.Policy.Order == OrderKey && m.m.Key != nil && first.m.Key != nil
	return m.id() == first.id() || ordered && string(m.m.Key) == string(first.m.Key)
}

func (b *batch) round(ctx context.Context) {
	now, wait := b.choose()
	switch {
	case len(now) == 0:
		_ = sleep(ctx, wait) //nolint:errcheck // the next round sees why it was cut short
	case now[0].single() || b.p.cfg.BatchHandler == nil:
		b.end(ctx, now[0], now[0].process(ctx))
	default:
		b.run(ctx, now)
	}
}

// choose picks what may run together now, in order: nothing that waits and nothing behind it, no id twice, and a message that must be
// alone only by itself. Messages of one key may run together: the handler gets them in order. Nothing to run: wait says for how long.
func (b *batch) choose() (now []*member, wait time.Duration) {
	most := b.p.cfg.Batch.Max
	if b.p.cfg.BatchHandler == nil {
		most = 1
	}
	ids := map[[2]string]bool{}
	var held []*member
	for _, m := range b.pending {
		left := time.Until(m.until)
		switch {
		case heldBack(m, held):
		case m.waits && left > 0:
			if wait == 0 || left < wait {
				wait = left
			}
			held = append(held, m)
		case ids[m.id()] || m.single() && len(now) > 0:
			held = append(held, m)
		default:
			m.waits = false
			now = append(now, m)
			ids[m.id()] = true
			if m.single() || len(now) == most {
				return now, 0
			}
		}
	}
	return now, wait
}

func heldBack(m *member, held []*member) bool {
	return slices.ContainsFunc(held, func(first *member) bool { return first.i < m.i && m.behind(first) })
}

// run makes one claim for each of ms, runs the handler once for those that are ours, and splits where nobody knows whose fault it was.
func (b *batch) run(ctx context.Context, ms []*member) {
	held := slices.Clone(b.back)
	var free []*member
	for _, m := range b.pending {
		if m.waits && !m.ended {
			held = append(held, m)
		}
	}
	for _, m := range ms {
		if !m.ended && !heldBack(m, held) {
			free = append(free, m)
		}
	}
	if len(free) == 0 || b.halted || b.p.gate.enter(ctx, false) != nil {
		return // they stay pending
	}
	split := b.runTogether(ctx, free)
	b.p.gate.leave()
	if len(split) > 0 {
		half := len(split) / 2
		b.run(ctx, split[:half])
		b.run(ctx, split[half:])
	}
}

// runTogether returns the members to split: their run failed as a whole, and their claims are handed back.
func (b *batch) runTogether(ctx context.Context, ms []*member) (split []*member) {
	ds := make([]dedupe.Delivery, len(ms))
	for i, m := range ms {
		ds[i] = m.d
	}
	outs, errs := b.p.cfg.Guard.ClaimBatch(ctx, ds)
	var ours []*member
	var claims []*dedupe.Claim
	for i, m := range ms {
		c := outs[i].Claim
		if errs[i] != nil || outs[i].Verdict != dedupe.Claimed {
			continue
		}
		if all, _ := c.Deaths(); all >= deathsToBeAlone {
			m.handBack(ctx, c)
			m.d.Alone = true
			b.wait(m, Disposition{Tier: -1})
			continue
		}
		if _, doomed, err := m.doomed(ctx, c); doomed || err != nil {
			m.handBack(ctx, c)
			m.aside = true
			b.wait(m, Disposition{Tier: -1})
			continue
		}
		ours, claims = append(ours, m), append(claims, c)
	}
	if len(ours) > 0 {
		split = b.handle(ctx, ours, claims)
	}
	// Last, so that no claim of ours waits for a duplicate's reply or for a letter.
	for i, m := range ms {
		switch {
		case errs[i] != nil:
			b.note(ctx, m)(m.unanswered(ctx, errs[i]))
		case outs[i].Verdict != dedupe.Claimed:
			b.note(ctx, m)(m.met(ctx, outs[i]))
		}
	}
	return split
}

// handle runs the handler once and ends the claims.
func (b *batch) handle(ctx context.Context, ours []*member, claims []*dedupe.Claim) (split []*member) {
	ms := make([]*Message, len(ours))
	for i, m := range ours {
		ms[i] = m.m
	}
	e, settled := b.p.handle(ctx, ms, claims)
	defer settled()
	split = b.complete(ctx, ours, claims, e) // first: their work is done
	for i, m := range ours {
		one, whole := e.of(i, len(ours))
		switch {
		case one.err == nil:
		case whole && e.cancelled == nil && !misused(e.err):
			if b.apart(ctx, m, claims[i], e) {
				split = append(split, m)
			}
		default:
			b.note(ctx, m)(m.failed(ctx, claims[i], one))
		}
	}
	return split
}

// complete ends the claims of those that succeeded, and returns those to split: their transaction was rolled back, whosever fault it was.
func (b *batch) complete(ctx context.Context, ours []*member, claims []*dedupe.Claim, e ended) (split []*member) {
	var good []*member
	var cs []*dedupe.Claim
	for i, m := range ours {
		if one, _ := e.of(i, len(ours)); one.err == nil {
			good, cs = append(good, m), append(cs, claims[i])
		}
	}
	if len(good) == 0 {
		return nil
	}
	outs, errs := b.p.cfg.Guard.Complete(ctx, cs...)
	for i, m := range good {
		if errors.Is(errs[i], dedupe.ErrNotApplied) && len(ours) > 1 && e.cancelled == nil {
			m.handBack(ctx, cs[i])
			split = append(split, m)
			continue
		}
		b.note(ctx, m)(m.completed(ctx, cs[i], ended{cancelled: e.cancelled}, outs[i], errs[i]))
	}
	return split
}

// apart hands one claim of a batch that failed as a whole back, uncounted. False: it has ended all the same, since the row says so or a
// store does not answer.
func (b *batch) apart(ctx context.Context, m *member, c *dedupe.Claim, e ended) bool {
	out, _, err := b.p.cfg.Guard.Fail(ctx, c, e.err)
	switch {
	case err != nil:
		m.handBack(ctx, c)
		b.end(ctx, m, m.notCounted(ctx, e, err))
	case out.Verdict != dedupe.Claimed:
		b.note(ctx, m)(m.met(ctx, out))
	default:
		m.handBack(ctx, c)
		return true
	}
	return false
}

// note takes what a try of m came to.
func (b *batch) note(ctx context.Context, m *member) func(d Disposition, here bool) {
	return func(d Disposition, here bool) {
		if here {
			b.wait(m, d)
			return
		}
		b.end(ctx, m, d)
	}
}

func (b *batch) wait(m *member, d Disposition) {
	m.waits, m.until, m.last = true, time.Now().Add(d.After), d
}

// end is the end of m.
func (b *batch) end(ctx context.Context, m *member, d Disposition) {
	if m.ended {
		return
	}
	m.ended, m.last = true, d
	b.out[m.i] = d
	b.halted = b.halted || d.Action == Halt
	if d.Action == Again {
		b.back = append(b.back, m)
	}
	b.p.settled(ctx, m.m, d, time.Since(m.start))
}

// forget drops what has ended. What is behind a message that goes back goes back with it, in its order.
func (b *batch) forget(ctx context.Context) {
	for _, m := range b.pending {
		i := slices.IndexFunc(b.back, func(first *member) bool { return first.i < m.i && m.behind(first) })
		if i < 0 || m.ended {
			continue
		}
		d := again(WhyBusy, b.back[i].last.After, errBehind)
		if why := b.back[i].last.Why; why != Failed {
			d.Why = why
		}
		b.end(ctx, m, d)
	}
	b.pending = slices.DeleteFunc(b.pending, func(m *member) bool { return m.ended })
}

// handAllBack ends what is still pending: nothing of it is claimed.
func (b *batch) handAllBack(ctx context.Context, err error) {
	for _, m := range b.pending {
		d := again(Draining, 0, errors.Join(err, m.last.Err))
		d.Failures = m.last.Failures
		b.end(ctx, m, d)
	}
}
