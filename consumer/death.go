package consumer

import (
	"context"
	"errors"
	"sync"

	"github.com/idemq/idemq/dedupe"
)

// death is why a message becomes a dead letter.
type death struct {
	reason   string
	cause    error
	failures int
	failed   bool // the handler just failed, and no store has counted it yet
}

var errExhausted = errors.New("consumer: the handler failed as often as the policy allows, and its letter could not be stored then")

// unburied remembers deaths of this process whose letters could not be stored, so that the handler does not run again for each try. All of
// it may be forgotten: the count in the store bounds how often it runs.
type unburied struct {
	mu     sync.Mutex
	deaths map[dedupe.Key]death
}

const maxUnburied = 10_000

// keep takes no more when it is full.
func (u *unburied) keep(k dedupe.Key, d death) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.deaths == nil {
		u.deaths = map[dedupe.Key]death{}
	}
	if len(u.deaths) < maxUnburied {
		u.deaths[k] = d
	}
}

func (u *unburied) of(k dedupe.Key) (d death, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	d, ok = u.deaths[k]
	return d, ok
}

func (u *unburied) forget(k dedupe.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.deaths, k)
}

// doomed says that a claimed message has failed for good before, and that only its letter is missing. Where nobody can be buried, it
// runs instead. In Transactional the log is asked: a claim does not know its counts.
func (t *task) doomed(ctx context.Context, c *dedupe.Claim) (d death, yes bool, err error) {
	if t.lettersOff() {
		return death{}, false, nil
	}
	failures := max(c.Attempt()-1, 0)
	d, yes = t.p.unburied.of(c.Key())
	if !yes && !t.p.cfg.Policy.exhausted(failures) {
		return death{}, false, nil
	}
	if t.p.cfg.Guard.Mode() == dedupe.Transactional {
		rec, err := t.p.cfg.Guard.Inspect(ctx, c.Key())
		if err != nil {
			return death{}, false, err
		}
		if failures = rec.Failures; rec.State == dedupe.StateDead { // to be taken up: counts start again
			failures = 0
		}
	}
	switch {
	case yes && failures >= d.failures:
		return d, true, nil
	case t.p.cfg.Policy.exhausted(failures):
		return death{reason: ReasonExhausted, cause: errExhausted, failures: failures}, true, nil
	}
	t.p.unburied.forget(c.Key()) // reopened or redriven since
	return death{}, false, nil
}

// buryAtOnce buries a message that does not run. Its claim is renewed meanwhile: storing a letter may take long.
func (t *task) buryAtOnce(ctx context.Context, c *dedupe.Claim, why death) Disposition {
	_, unhold := t.p.cfg.Guard.Hold(ctx, c)
	defer unhold() //nolint:errcheck // a lease lost meanwhile shows in what the store answers
	return t.bury(ctx, c, why)
}

// count ends the claim of a message whose letter could not be stored. Its failure is counted, so that the handler does not run for ever.
func (t *task) count(ctx context.Context, c *dedupe.Claim, d death) {
	counted, errs := t.p.cfg.Guard.Release(ctx, dedupe.ReleaseReason{Cause: d.cause}, c)
	if errs[0] != nil {
		t.p.cfg.Logger.WarnContext(ctx, "claim not released", "key", c.Key(), "err", errs[0])
		return
	}
	d.failures, d.failed = counted[0], false
	t.p.unburied.keep(c.Key(), d)
}
