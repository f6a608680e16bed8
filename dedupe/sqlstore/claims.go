package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// claimTries bounds how often a claim that met a row which was then gone or changed is decided again.
const claimTries = 5

// Claim implements dedupe.Store.
func (l *Log) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	qs := make([]question, len(reqs))
	for i, r := range reqs {
		qs[i] = question{
			key:   r.Key,
			wrong: errors.Join(checkKey(r.Key, r.Owner), checkDuration("lease", r.Lease), checkOriginal(r.Original)),
			ask: func(ctx context.Context, q querier, st statements) (dedupe.Reply, error) {
				return l.claim(ctx, q, st, r)
			},
			locked: func() dedupe.Reply { return l.lockedByAnother(r.Key) },
		}
	}
	return l.answer(ctx, "claim", qs)
}

// claim: the insert decides who is first. A row that is there is read, and where it may be taken, taken by a statement that tests that
// itself.
func (l *Log) claim(ctx context.Context, q querier, st statements, r dedupe.ClaimRequest) (dedupe.Reply, error) {
	a := keyArgs(r.Key).with(args{
		"owner": []byte(r.Owner), "lease": r.Lease.Milliseconds(), "alone": bit(r.Alone),
		"fingerprint": r.Fingerprint[:], "original": []byte(r.Original), "redriven": bit(r.Redriven),
	})
	was, wrote, err := l.write(ctx, q, st, "claim_insert", r.Key, a)
	for try := 0; err == nil && try < claimTries; try++ {
		switch {
		case wrote && was.claimedBy(r.Owner):
			return was.inPlace(), nil
		case was.State == dedupe.StateAbsent: // purged or forgotten since
			was, wrote, err = l.write(ctx, q, st, "claim_insert", r.Key, a)
			continue
		case !was.takeable(r):
			return dedupe.Reply{Verdict: was.verdict(), Record: was.Record}, nil
		}
		var now row
		now, _, err = l.write(ctx, q, st, "claim_take", r.Key, a.with(args{"was_owner": []byte(was.Owner)}))
		if err == nil && now.claimedBy(r.Owner) {
			rep := now.inPlace()
			rep.Taken = was.State == dedupe.StateClaimed && was.Owner != r.Owner && now.Deaths == was.Deaths+1
			return rep, nil
		}
		was, wrote = now, false
	}
	// Others were quicker each time: it is theirs, for a moment.
	return dedupe.Reply{Verdict: dedupe.Busy, Record: was.Record}, err
}

// takeable spares the statement for the duplicates; the statement tests all of it again.
func (r row) takeable(req dedupe.ClaimRequest) bool {
	switch r.State {
	case dedupe.StateFree:
		return true
	case dedupe.StateClaimed:
		return r.Owner == req.Owner || r.LeaseLeft <= 0
	case dedupe.StateDead:
		return req.Redriven || r.written != r.present
	default:
		return false
	}
}

// lockedByAnother: a transaction that works on the row did not end in time.
func (l *Log) lockedByAnother(k dedupe.Key) dedupe.Reply {
	return dedupe.Reply{Verdict: dedupe.Busy, Record: dedupe.Record{Key: k, State: dedupe.StateClaimed, LeaseLeft: l.cfg.Timeout}}
}

// held makes the question of a request that needs a claim in place.
func (l *Log) held(statement string, g dedupe.Grip, wrong error, more args, already func(row) bool) question {
	return question{
		key:   g.Key,
		wrong: errors.Join(checkKey(g.Key, g.Owner), wrong),
		ask: func(ctx context.Context, q querier, st statements) (dedupe.Reply, error) {
			a := keyArgs(g.Key).with(args{"owner": []byte(g.Owner), "incarnation": string(g.Incarnation)}).with(more)
			now, wrote, err := l.write(ctx, q, st, statement, g.Key, a)
			if err == nil && (wrote || already(now)) {
				return now.inPlace(), nil
			}
			return now.stale(), err
		},
	}
}

// unclaimed makes the question of a request without a claim in the log: insert, and where a row is there, update it if that is allowed.
func (l *Log) unclaimed(op string, g dedupe.Grip, wrong error, more args, already func(row) bool) question {
	return question{
		key:   g.Key,
		wrong: errors.Join(checkKey(g.Key, g.Owner), wrong),
		waits: true,
		ask: func(ctx context.Context, q querier, st statements) (dedupe.Reply, error) {
			a := keyArgs(g.Key).with(args{"owner": []byte(g.Owner)}).with(more)
			now, wrote, err := l.write(ctx, q, st, op+"_insert", g.Key, a)
			if err == nil && !wrote {
				now, wrote, err = l.write(ctx, q, st, op+"_update", g.Key, a)
			}
			if err == nil && (wrote || already(now)) {
				return now.inPlace(), nil
			}
			return now.stale(), err
		},
	}
}

// Renew implements dedupe.Store.
func (l *Log) Renew(ctx context.Context, reqs []dedupe.RenewRequest) []dedupe.Reply {
	qs := make([]question, len(reqs))
	for i, r := range reqs {
		qs[i] = l.held("renew", r.Grip, checkDuration("lease", r.Lease), args{"lease": r.Lease.Milliseconds()},
			func(now row) bool { return !l.d.returning && now.held(r.Grip) }) // two renewals in one millisecond change nothing
	}
	return l.answer(ctx, "renew", qs)
}

// Complete implements dedupe.Store.
func (l *Log) Complete(ctx context.Context, reqs []dedupe.CompleteRequest) []dedupe.Reply {
	qs := make([]question, len(reqs))
	for i, r := range reqs {
		already := func(now row) bool { return now.State == dedupe.StateDone && now.Owner == r.Owner }
		if r.Unclaimed {
			qs[i] = l.unclaimed("record", r.Grip, checkComplete(r), doneArgs(r), already)
		} else {
			qs[i] = l.held("complete", r.Grip, checkComplete(r), doneArgs(r), already)
		}
	}
	return l.answer(ctx, "complete", qs)
}

func checkComplete(r dedupe.CompleteRequest) error {
	return errors.Join(checkDuration("retention", r.Retention), checkOriginal(r.Original), checkResult(r.Result))
}

func doneArgs(r dedupe.CompleteRequest) args {
	return args{
		"fingerprint": r.Fingerprint[:], "original": []byte(r.Original), "result": r.Result,
		"retention": r.Retention.Milliseconds(), "redriven": bit(r.Redriven),
	}
}

// Release implements dedupe.Store.
func (l *Log) Release(ctx context.Context, reqs []dedupe.ReleaseRequest) []dedupe.Reply {
	qs := make([]question, len(reqs))
	for i, r := range reqs {
		already := func(now row) bool { return now.State == dedupe.StateFree && now.Owner == r.Owner }
		more := args{"failed": bit(r.Failed)}
		if r.Unclaimed {
			more.with(args{"fingerprint": r.Fingerprint[:], "original": []byte(r.Original), "redriven": bit(r.Redriven)})
			qs[i] = l.unclaimed("release", r.Grip, checkOriginal(r.Original), more, already)
		} else {
			qs[i] = l.held("release", r.Grip, nil, more, already)
		}
	}
	return l.answer(ctx, "release", qs)
}

// Bury implements dedupe.Store.
func (l *Log) Bury(ctx context.Context, reqs []dedupe.BuryRequest) []dedupe.Reply {
	qs := make([]question, len(reqs))
	for i, r := range reqs {
		already := func(now row) bool { return now.State == dedupe.StateDead && now.Owner == r.Owner }
		more := args{"reason": text(r.Reason)}
		if r.Unclaimed {
			more.with(args{"fingerprint": r.Fingerprint[:], "original": []byte(r.Original)})
			qs[i] = l.unclaimed("bury", r.Grip, checkOriginal(r.Original), more, already)
			// Another delivery of the message is in its transaction: whatever becomes of it, it is not ours to bury.
			qs[i].locked = func() dedupe.Reply {
				rep := l.lockedByAnother(r.Key)
				rep.Err = dedupe.ErrStale
				return rep
			}
		} else {
			qs[i] = l.held("bury", r.Grip, nil, more, already)
		}
	}
	return l.answer(ctx, "bury", qs)
}

// Learn implements dedupe.Store: a log knows, and is not told.
func (l *Log) Learn(_ context.Context, recs []dedupe.Record, _ time.Duration) []error {
	errs := make([]error, len(recs))
	for i, r := range recs {
		errs[i] = keyError("learn", r.Key, errors.ErrUnsupported)
	}
	return errs
}
