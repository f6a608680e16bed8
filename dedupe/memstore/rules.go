package memstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// The rules. Each looks at what is known about a key, decides, and writes at most one row. States go up only: free, claimed, dead,
// done; the ways down are release, reopen, and taking up a dead key again.

// claim: absent, free and expired keys are taken, and dead ones that may be taken up.
func (b at) claim(r dedupe.ClaimRequest) dedupe.Reply {
	if err := errors.Join(named(r.Key, r.Owner), long("lease", r.Lease)); err != nil {
		return dedupe.Reply{Err: err}
	}
	was := b.see(r.Key, r.Incarnation)
	next, taken := was, false
	switch {
	case was.State == dedupe.StateClaimed && was.Owner == r.Owner: // asked again: the same fence, and nothing counts
	case b.open(was, r.Redriven):
		next = b.takenUp(was)
		next.Fence = max(was.Fence+1, b.now.UnixMilli())
		if was.State == dedupe.StateClaimed { // a takeover
			taken = true
			next.Deaths++
			if was.Alone {
				next.AloneDeaths++
			}
		}
	default:
		return dedupe.Reply{Verdict: verdict(was), Record: b.record(was)}
	}
	next.State, next.Owner, next.Alone = dedupe.StateClaimed, r.Owner, r.Alone
	next.Incarnation = b.incarnationFor(r.Incarnation)
	next.Fingerprint = r.Fingerprint
	next.Original = cmp.Or(r.Original, was.Original)
	next.Reason = ""
	next.leaseEnd = b.now.Add(r.Lease)
	next.forgetAt = latest(was.forgetAt, next.leaseEnd, b.now.Add(r.Retention))
	reply := b.written(next)
	reply.Taken = taken
	return reply
}

// renew: whoever holds the claim, expired or not, holds it for Lease from now.
func (b at) renew(r dedupe.RenewRequest) dedupe.Reply {
	if err := errors.Join(named(r.Key, r.Owner), long("lease", r.Lease)); err != nil {
		return dedupe.Reply{Err: err}
	}
	was := b.see(r.Key, r.Incarnation)
	if !b.held(was, r.Grip) {
		return b.stale(was)
	}
	next := was
	next.leaseEnd = b.now.Add(r.Lease)
	next.forgetAt = latest(was.forgetAt, next.leaseEnd)
	return b.written(next)
}

// complete: a held claim, expired or not, becomes done; done is never overwritten.
func (b at) complete(r dedupe.CompleteRequest) dedupe.Reply {
	if err := errors.Join(named(r.Key, r.Owner), long("retention", r.Retention)); err != nil {
		return dedupe.Reply{Err: err}
	}
	was := b.see(r.Key, r.Incarnation)
	switch {
	case was.State == dedupe.StateDone && was.Owner == r.Owner: // asked again
		return dedupe.Reply{Verdict: dedupe.Claimed, Record: b.record(was)}
	case b.held(was, r.Grip):
	case r.Unclaimed && b.openTo(was, r.Owner, r.Redriven):
	default:
		return b.stale(was)
	}
	next := b.takenUp(was)
	next.State, next.Owner = dedupe.StateDone, r.Owner
	next.Incarnation = b.incarnationFor(r.Incarnation)
	next.Fingerprint = r.Fingerprint
	next.Original = cmp.Or(r.Original, was.Original)
	next.Result = bytes.Clone(r.Result)
	next.Alone, next.Reason = false, ""
	next.ExpiresAt = b.now.Add(r.Retention)
	next.forgetAt = next.ExpiresAt
	return b.written(next)
}

// release: a held claim becomes free; the failure counts once.
func (b at) release(r dedupe.ReleaseRequest) dedupe.Reply {
	if err := named(r.Key, r.Owner); err != nil {
		return dedupe.Reply{Err: err}
	}
	was := b.see(r.Key, r.Incarnation)
	switch {
	case was.State == dedupe.StateFree && was.Owner == r.Owner: // asked again
		return dedupe.Reply{Verdict: dedupe.Claimed, Record: b.record(was)}
	case b.held(was, r.Grip):
	case r.Unclaimed && b.openTo(was, r.Owner, r.Redriven):
	default:
		return b.stale(was)
	}
	next := b.takenUp(was)
	next.State, next.Owner = dedupe.StateFree, r.Owner
	next.Incarnation = b.incarnationFor(r.Incarnation)
	next.Alone, next.Reason = false, ""
	if r.Failed {
		next.Failures++
		if !b.isLog && r.Failures > 0 {
			next.Failures = r.Failures
		}
	}
	if was.State == dedupe.StateAbsent || was.State == dedupe.StateDead {
		next.Fingerprint, next.Original = r.Fingerprint, cmp.Or(r.Original, was.Original)
	}
	next.forgetAt = latest(was.forgetAt, b.now.Add(r.Retention))
	return b.written(next)
}

// bury: a held claim becomes dead; never over done, nor over a claim of another.
func (b at) bury(r dedupe.BuryRequest) dedupe.Reply {
	if err := named(r.Key, r.Owner); err != nil {
		return dedupe.Reply{Err: err}
	}
	was := b.see(r.Key, r.Incarnation)
	switch {
	case was.State == dedupe.StateDead && was.Owner == r.Owner: // asked again
		return dedupe.Reply{Verdict: dedupe.Claimed, Record: b.record(was)}
	case b.held(was, r.Grip):
	case r.Unclaimed && (was.State == dedupe.StateDead || b.openTo(was, r.Owner, false)):
	default:
		return b.stale(was)
	}
	next := was
	next.State, next.Owner = dedupe.StateDead, r.Owner
	next.Incarnation = b.incarnationFor(r.Incarnation)
	next.Alone, next.Reason = false, r.Reason
	if was.State == dedupe.StateAbsent {
		next.Fingerprint, next.Original = r.Fingerprint, r.Original
	}
	next.forgetAt = latest(was.forgetAt, b.now.Add(r.Retention))
	return b.written(next)
}

// learn: a Store is told what the log knows.
func (b at) learn(rec dedupe.Record, retention time.Duration) error {
	if rec.Key.IsZero() {
		return dedupe.ErrInvalidID
	}
	if rec.State == dedupe.StateAbsent || rec.State > dedupe.StateDone {
		return fmt.Errorf("a %v record says nothing; Forget removes a key", rec.State)
	}
	if err := long("retention", retention); err != nil {
		return err
	}
	was := b.see(rec.Key, b.rows[rec.Key].Incarnation)
	same := was.State != dedupe.StateAbsent && was.Incarnation == rec.Incarnation
	if same && (was.State == dedupe.StateDone || was.Generation > rec.Generation && rec.State != dedupe.StateDone) {
		return nil
	}
	next := row{Record: rec}
	next.CreatedAt = was.CreatedAt
	next.Result = bytes.Clone(rec.Result)
	next.Fence = max(was.Fence, rec.Fence)
	if same && was.Generation == rec.Generation {
		next.Failures = max(was.Failures, rec.Failures)
		next.Deaths = max(was.Deaths, rec.Deaths)
		next.AloneDeaths = max(was.AloneDeaths, rec.AloneDeaths)
	}
	next.leaseEnd = b.now.Add(rec.LeaseLeft)
	next.forgetAt = latest(next.leaseEnd, b.now.Add(retention))
	next.ExpiresAt = time.Time{}
	if rec.State == dedupe.StateDone {
		next.ExpiresAt, next.forgetAt = b.now.Add(retention), b.now.Add(retention)
	}
	b.write(next)
	return nil
}

// held: the claim of g is in place. How much of its lease is left does not matter.
func (b at) held(r row, g dedupe.Grip) bool {
	return r.State == dedupe.StateClaimed && r.Owner == g.Owner &&
		(!b.isLog || r.Incarnation == g.Incarnation && r.Incarnation == b.incarnation)
}

// open: anybody may take the key.
func (b at) open(r row, redriven bool) bool {
	switch r.State {
	case dedupe.StateAbsent, dedupe.StateFree:
		return true
	case dedupe.StateClaimed:
		return !b.now.Before(r.leaseEnd)
	case dedupe.StateDead:
		return redriven || b.isLog && r.Incarnation != b.incarnation
	default:
		return false
	}
}

// openTo: o may take the key without a claim; its own is no obstacle.
func (b at) openTo(r row, o dedupe.Owner, redriven bool) bool {
	return b.open(r, redriven) || r.State == dedupe.StateClaimed && r.Owner == o
}

// takenUp is r, and if it is dead, its next generation.
func (b at) takenUp(r row) row {
	if r.State == dedupe.StateDead {
		r.Failures, r.Deaths, r.AloneDeaths = 0, 0, 0
		r.Generation++
		r.Fingerprint = dedupe.Fingerprint{}
	}
	return r
}

// incarnationFor is what a row carries that is written now: a log's own, whatever the caller knows.
func (b at) incarnationFor(told dedupe.Incarnation) dedupe.Incarnation {
	if b.isLog {
		return b.incarnation
	}
	return told
}

// written writes r and says that it is in place.
func (b at) written(r row) dedupe.Reply {
	b.write(r)
	return dedupe.Reply{Verdict: dedupe.Claimed, Record: b.record(b.rows[r.Key])}
}

// stale says whose the key is instead.
func (b at) stale(r row) dedupe.Reply {
	return dedupe.Reply{Verdict: verdict(r), Record: b.record(r), Err: dedupe.ErrStale}
}

// verdict about a key that is not the caller's.
func verdict(r row) dedupe.Verdict {
	switch r.State {
	case dedupe.StateClaimed:
		return dedupe.Busy
	case dedupe.StateDead:
		return dedupe.Dead
	case dedupe.StateDone:
		return dedupe.Done
	default:
		return 0
	}
}

func named(k dedupe.Key, o dedupe.Owner) error {
	if k.IsZero() {
		return fmt.Errorf("%w: key is zero; make one with dedupe.NewKey", dedupe.ErrInvalidID)
	}
	if o == "" {
		return errors.New("owner is empty; every delivery attempt has a random one")
	}
	return nil
}

func long(field string, d time.Duration) error {
	if d < time.Millisecond {
		return fmt.Errorf("%s %v: at least 1ms", field, d)
	}
	return nil
}

func latest(ts ...time.Time) (last time.Time) {
	for _, t := range ts {
		if t.After(last) {
			last = t
		}
	}
	return last
}
