package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/internal/hook"
)

// completed says what the end of a claim means whose handler returned success.
func (t *task) completed(ctx context.Context, c *dedupe.Claim, e ended, out dedupe.Outcome, err error) (d Disposition, here bool) {
	switch {
	case err == nil && out.Verdict == dedupe.Claimed:
		return ack(dedupe.Claimed), false
	case err == nil: // Transactional: the row is another's
		return t.met(ctx, out)
	case errors.Is(err, dedupe.ErrNotRecorded):
		return t.notRecorded(ctx, c, err), false
	case errors.Is(err, dedupe.ErrNotApplied):
		e.err = err
		return t.failed(ctx, c, e)
	case errors.Is(err, dedupe.ErrStale):
		return again(WhyBusy, t.retryDelay(1, nil), err), false
	case dedupe.IsOutage(err):
		return again(Outage, t.outageDelay(), err), false
	}
	return halt(err), false
}

// notRecorded: the work may be committed without its row, so it must not run again, not after a restart either: a letter, Dead, and then
// Halt, so that the programming error is seen.
func (t *task) notRecorded(ctx context.Context, c *dedupe.Claim, cause error) Disposition {
	d := t.bury(ctx, c, death{reason: ReasonNotRecorded, cause: cause, failures: max(c.Attempt()-1, 0)})
	h := halt(cause)
	h.Letter, h.Verdict = d.Letter, d.Verdict
	if d.Action != Ack {
		h.Err = fmt.Errorf("%w; and it is not parked as a dead letter, so it runs again at the next start: %w", cause, d.Err)
	}
	return h
}

// failed ends a claim whose handler returned an error.
func (t *task) failed(ctx context.Context, c *dedupe.Claim, e ended) (d Disposition, here bool) {
	out, failures, err := t.p.cfg.Guard.Fail(ctx, c, e.err)
	switch {
	case err != nil:
		t.handBack(ctx, c)
		return t.notCounted(ctx, e, err), false
	case misused(e.err):
		if out.Verdict == dedupe.Claimed {
			t.handBack(ctx, c)
		}
		return halt(e.err), false
	case out.Verdict != dedupe.Claimed:
		return t.met(ctx, out)
	case e.cancelled != nil:
		t.handBack(ctx, c)
		return t.notCounted(ctx, e, nil), false
	case t.p.isPermanent(e.err):
		return t.bury(ctx, c, death{reasonOf(e.err), e.err, failures, true}), false
	case t.p.cfg.Policy.exhausted(failures):
		return t.bury(ctx, c, death{ReasonExhausted, e.err, failures, true}), false
	}
	t.busy, t.busyIn = time.Time{}, 0 // its handler ran: nobody else is at it
	counted, errs := t.p.cfg.Guard.Release(ctx, dedupe.ReleaseReason{Cause: e.err}, c)
	if errs[0] != nil { // not counted, or perhaps not: the next failure is
		return t.notCounted(ctx, e, errs[0]), false
	}
	d, here = t.again(counted[0], e.err)
	if here {
		t.tellRetry(ctx, d)
	}
	return d, here
}

// again is the way back of a counted failure: in place as long as the policy says, then to the broker.
func (t *task) again(failures int, err error) (d Disposition, here bool) {
	pol := t.p.cfg.Policy
	d = Disposition{Action: Again, Why: Failed, Tier: -1, Failures: failures, Verdict: dedupe.Claimed, Err: err, After: t.retryDelay(failures, err)}
	if failures < pol.Retry.InPlace {
		return d, t.short(d.After)
	}
	if d.Tier = pol.tier(failures); d.Tier >= 0 {
		d.After = max(pol.Retry.Tiers[d.Tier], retryAfter(err))
	}
	return d, false
}

// tellRetry: a failure after which the message is tried again here would otherwise be told by nobody when a later run succeeds.
func (t *task) tellRetry(ctx context.Context, d Disposition) {
	log := t.p.cfg.Logger
	if log.Enabled(ctx, slog.LevelInfo) {
		log.LogAttrs(ctx, slog.LevelInfo, "failed; trying again in place", append(t.p.whichMessage(t.m),
			slog.Int("failures", d.Failures), slog.Duration("after", d.After), slog.String("err", errorText(d.Err)))...)
	}
}

// short says whether to wait here. What the policy's own delays do not reach, by RetryAfter, is the adapter's to wait for: it needs no slot
// for it.
func (t *task) short(d time.Duration) bool { return d <= 2*t.p.cfg.Policy.Retry.Backoff.Max }

// notCounted is the way back when a run ended by nobody's fault, or by a store's. err is the guard's, if it said so.
func (t *task) notCounted(ctx context.Context, e ended, err error) Disposition {
	all := errors.Join(err, e.cancelled)
	if !errors.Is(all, e.err) {
		all = errors.Join(all, e.err)
	}
	switch {
	case misused(e.err):
		return halt(all)
	case errors.Is(err, dedupe.ErrStale), errors.Is(err, dedupe.ErrLeaseLost), errors.Is(e.cancelled, dedupe.ErrLeaseLost):
		return again(WhyBusy, t.retryDelay(1, nil), all)
	case e.cancelled != nil || stopping(ctx) != nil:
		return again(Draining, 0, all)
	case dedupe.IsOutage(err):
		return again(Outage, t.outageDelay(), all)
	}
	return halt(all)
}

// misused: programming errors that no retry mends, and after which going on could apply twice.
func misused(err error) bool {
	return errors.Is(err, dedupe.ErrRecorded) || errors.Is(err, dedupe.ErrWrongMode)
}

// reasonOf a permanent error.
func reasonOf(err error) string {
	var u *undecodableError
	if errors.As(err, &u) {
		return ReasonUndecodable
	}
	return ReasonPermanent
}

// handBack frees claims whose handler did not fail: nothing is counted.
func (t *task) handBack(ctx context.Context, c *dedupe.Claim) { t.p.handBack(ctx, c) }

func (p *Pipeline) handBack(ctx context.Context, claims ...*dedupe.Claim) {
	_, errs := p.cfg.Guard.Release(ctx, dedupe.ReleaseReason{HandBack: true}, claims...)
	for i, err := range errs {
		if err != nil { // it costs one lease
			p.cfg.Logger.WarnContext(ctx, "claim not handed back", "key", claims[i].Key(), "err", err)
		}
	}
}

// bury stores the dead letter and parks the key, in the guard's order.
func (t *task) bury(ctx context.Context, c *dedupe.Claim, why death) Disposition {
	if t.lettersOff() {
		t.handBack(ctx, c)
		return t.noLetters(why.reason, why.cause)
	}
	l := t.newLetter(why.reason, why.cause, why.failures)
	stored := false
	v, err := t.p.cfg.Guard.Bury(ctx, c, why.reason, func(ctx context.Context) error {
		err := t.dl.Publish(ctx, l)
		stored = err == nil
		return err
	})
	if stored {
		t.published(ctx, l)
	}
	if err != nil {
		switch {
		case !stored && why.failed:
			t.count(ctx, c, why)
		case !stored || errors.Is(err, dedupe.ErrBusy):
			t.handBack(ctx, c)
		}
		return t.notStored(ctx, errors.Join(err, why.cause))
	}
	t.p.unburied.forget(c.Key())
	d := ack(v)
	d.Letter, d.Failures, d.Err = stored, why.failures, why.cause
	return d
}

// letter stores a dead letter that belongs to no claim: nothing is buried.
func (t *task) letter(ctx context.Context, reason string, cause error) Disposition {
	if t.lettersOff() {
		return t.noLetters(reason, cause)
	}
	l := t.newLetter(reason, cause, 0)
	if err := t.dl.Publish(ctx, l); err != nil {
		return t.notStored(ctx, errors.Join(fmt.Errorf("consumer: publish dead letter of %v: %w", t.m.Position, err), cause))
	}
	t.published(ctx, l)
	d := ack(0)
	d.Letter, d.Err = true, cause
	return d
}

func (t *task) lettersOff() bool { return t.dl == nil || t.p.cfg.Policy.DeadLetter.Off }

func (t *task) noLetters(reason string, cause error) Disposition {
	return halt(fmt.Errorf("%w: %v is %s: %w", ErrNoDeadLetters, t.m.Position, reason, cause))
}

// notStored: nothing is lost; the message comes again.
func (t *task) notStored(ctx context.Context, err error) Disposition {
	switch {
	case errors.Is(err, ErrLetterRefused):
		return halt(err)
	case errors.Is(err, dedupe.ErrStale):
		return again(WhyBusy, t.retryDelay(1, nil), err)
	case stopping(ctx) != nil:
		return again(Draining, 0, err)
	}
	return again(Outage, t.outageDelay(), err)
}

func (t *task) newLetter(reason string, cause error, failures int) DeadLetter {
	return DeadLetter{
		Message: t.m, ID: t.m.id, Scope: t.m.scope, Namespace: t.m.namespace,
		Reason: reason, Error: errorText(cause), Attempts: failures, DiedAt: time.Now().UTC(),
	}
}

func (t *task) published(ctx context.Context, l DeadLetter) {
	attrs := append(t.p.whichMessage(t.m), slog.String("reason", l.Reason), slog.Int("attempts", l.Attempts), slog.String("err", l.Error))
	if named, ok := t.dl.(interface{ Topic() string }); ok {
		attrs = append(attrs, slog.String("to", named.Topic()))
	}
	t.p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "dead letter", attrs...)
	hook.Each(ctx, t.p.cfg.Logger, t.p.cfg.Hooks, func(h HookDeadLetter) { h.OnDeadLetter(ctx, l) })
}
