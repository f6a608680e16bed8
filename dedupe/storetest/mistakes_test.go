package storetest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

var broken = map[string]brokenStore{
	"each lease ends at once": {
		"failures others met/lease without deadline taken over while alive",
		opened(store{renew: func(s *memstore.Store, ctx context.Context, rs []dedupe.RenewRequest) []dedupe.Reply {
			return s.Renew(ctx, changed(rs, func(r *dedupe.RenewRequest) { r.Lease = min(r.Lease, time.Millisecond) }))
		}}),
	},
	"recovery removes what expired, and claims": {
		"failures others met/recovery reads, then overwrites a completion",
		func() func(now func() time.Time) dedupe.Store {
			var expired sync.Map
			return func(now func() time.Time) dedupe.Store {
				return watching{memstore.NewWithClock(now), &expired}
			}
		}(),
	},
	"seconds are taken for milliseconds": {
		"failures others met/seconds against milliseconds",
		changedClaims(func(r *dedupe.ClaimRequest) { r.Lease *= 1000 }),
	},
	"no time left means no deadline": {
		"failures others met/remaining time 0 read as none",
		opened(store{learn: func(s *memstore.Store, ctx context.Context, recs []dedupe.Record, d time.Duration) []error {
			return s.Learn(ctx, changed(recs, func(r *dedupe.Record) {
				if r.LeaseLeft <= 0 {
					r.LeaseLeft = time.Hour
				}
			}), d)
		}}),
	},
	"the duplicate's payload is taken for the first": {
		"failures others met/payload check skipped on the fast path",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			replies := s.Claim(ctx, rs)
			for i := range replies {
				replies[i].Record.Fingerprint = rs[i].Fingerprint
			}
			return replies
		}}),
	},
	"parts are joined with a colon": {
		"failures others met/key parts joined ambiguously",
		otherKeys(func(scope, namespace, id string) (string, string, string) {
			return scope, "", strings.TrimPrefix(namespace+":"+id, ":")
		}),
	},
	"ids are folded": {
		"keys and values/hostile ids (over 1024 characters, NUL, not UTF-8, quotes, case, accents, trailing spaces) are each a message of their own",
		otherKeys(func(scope, namespace, id string) (string, string, string) {
			return scope, namespace, strings.ToLower(strings.TrimRight(id, " "))
		}),
	},
	"whoever enters a scope notes its mode": {
		"memory/the first mode that is noted stays, and every later one is told it",
		func(now func() time.Time) dedupe.Store { return overwriting{memstore.NewWithClock(now)} },
	},
	"the consumer is not in the key": {
		"failures others met/no consumer in the key",
		otherKeys(func(_, namespace, id string) (string, string, string) { return "everybody", namespace, id }),
	},
	"anybody completes": {
		"failures others met/mark or delete without owner",
		opened(store{complete: func(s *memstore.Store, ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply {
			return s.Complete(ctx, changed(rs, func(r *dedupe.CompleteRequest) { r.Owner = record(s, r.Key).Owner }))
		}}),
	},
	"a process has one owner": {
		"failures others met/owner is the host name",
		changedClaims(func(r *dedupe.ClaimRequest) { r.Owner = "localhost" }),
	},
	"the loser of a claim is told Done": {
		"failures others met/try-lock loser skips and the winner rolls back",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			replies := s.Claim(ctx, rs)
			for i := range replies {
				if replies[i].Verdict == dedupe.Busy {
					replies[i].Verdict = dedupe.Done
				}
			}
			return replies
		}}),
	},
	"the lease is judged by the process's clock": {
		"failures others met/lease judged by another clock",
		func(func() time.Time) dedupe.Store { return memstore.New() },
	},
	"times to live are whole seconds": {
		"failures others met/TTL under a millisecond or a second",
		changedCompletes(func(r *dedupe.CompleteRequest) { r.Retention = r.Retention.Truncate(time.Second) }),
	},
	"completion frees the lock": {
		"failures others met/lock freed at completion, late duplicate accepted",
		opened(store{complete: func(s *memstore.Store, ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply {
			replies := s.Complete(ctx, rs)
			for i, r := range rs {
				if replies[i].Err == nil {
					forgetKey(s, r.Key)
				}
			}
			return replies
		}}),
	},
	"a failure is written over a completion": {
		"failures others met/a loser overwrites Succeeded with Failed",
		opened(store{release: func(s *memstore.Store, ctx context.Context, rs []dedupe.ReleaseRequest) []dedupe.Reply {
			replies := s.Release(ctx, rs)
			for i, r := range rs {
				if replies[i].Verdict == dedupe.Done {
					forgetKey(s, r.Key)
				}
			}
			return replies
		}}),
	},
	"a duplicate is an outage": {
		"failures others met/duplicate counted as an outage",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			replies := s.Claim(ctx, rs)
			for i := range replies {
				if replies[i].Verdict == dedupe.Done {
					replies[i] = dedupe.Reply{Err: dedupe.ErrUnavailable}
				}
			}
			return replies
		}}),
	},
	"an error is taken for not acquired": {
		"failures others met/a store's error taken for success, or for not acquired",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			replies := s.Claim(ctx, rs)
			for i := range replies {
				if dedupe.IsOutage(replies[i].Err) {
					replies[i] = dedupe.Reply{Verdict: dedupe.Busy}
				}
			}
			return replies
		}}),
	},
	"each statement counts": {
		"failures others met/a statement executed a second time after a read timeout",
		opened(store{release: func(s *memstore.Store, ctx context.Context, rs []dedupe.ReleaseRequest) []dedupe.Reply {
			for _, r := range rs {
				if rec := record(s, r.Key); rec.State == dedupe.StateFree && rec.Owner == r.Owner {
					s.Claim(ctx, []dedupe.ClaimRequest{{Key: r.Key, Owner: r.Owner, Lease: time.Minute, Retention: time.Hour}})
				}
			}
			return s.Release(ctx, rs)
		}}),
	},
	"a dead letter sent again is a duplicate": {
		"failures others met/dead-letter replay refused as a duplicate",
		changedClaims(func(r *dedupe.ClaimRequest) { r.Redriven = false }),
	},
	"an id twice in a batch is answered twice the same": {
		"failures others met/the same id twice in one batch",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			replies, first := s.Claim(ctx, rs), map[dedupe.Key]int{}
			for i, r := range rs {
				if at, seen := first[r.Key]; seen {
					replies[i] = replies[at]
				} else {
					first[r.Key] = i
				}
			}
			return replies
		}}),
	},
	"no retention is the shortest": {
		"failures others met/retention of zero or less forgets at once",
		changedCompletes(func(r *dedupe.CompleteRequest) { r.Retention = max(r.Retention, time.Millisecond) }),
	},
	"one bad request fails the batch": {
		"requests/a lease under a millisecond is refused and its neighbours are claimed",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			replies := s.Claim(ctx, rs)
			for _, reply := range replies {
				if reply.Err != nil {
					for i := range replies {
						replies[i] = reply
					}
					break
				}
			}
			return replies
		}}),
	},
	"a cancelled context is not looked at": {
		"requests/a cancelled context is answered at once, for each request, as an outage; what is unavailable was not done",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			return s.Claim(context.WithoutCancel(ctx), rs)
		}}),
	},
	"a repeated claim is a takeover": {
		"claim/the same owner asking again after its lease ended holds the claim again and no death is counted",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			for _, r := range rs {
				if rec := record(s, r.Key); rec.State == dedupe.StateClaimed && rec.LeaseLeft <= 0 && rec.Owner == r.Owner {
					r.Owner = "another"
					s.Claim(ctx, []dedupe.ClaimRequest{r})
					s.Release(ctx, []dedupe.ReleaseRequest{{Grip: dedupe.Grip{Key: r.Key, Owner: "another"}}})
				}
			}
			return s.Claim(ctx, rs)
		}}),
	},
	"who reads first claims": {
		"concurrency/of many that claim a new key at the same time exactly one wins",
		opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			for _, r := range rs {
				if record(s, r.Key).State == dedupe.StateAbsent {
					time.Sleep(time.Millisecond) // so that all have read before one writes
					s.Claim(ctx, []dedupe.ClaimRequest{r})
					rec := record(s, r.Key)
					rec.Owner = r.Owner
					s.Learn(ctx, []dedupe.Record{rec}, time.Hour)
				}
			}
			return s.Claim(ctx, rs)
		}}),
	},
	"what is learned replaces everything": {
		"learn/done of the same incarnation is never overwritten by what is learned",
		opened(store{learn: func(s *memstore.Store, ctx context.Context, recs []dedupe.Record, d time.Duration) []error {
			for _, r := range recs {
				if r.State != dedupe.StateAbsent {
					forgetKey(s, r.Key)
				}
			}
			return s.Learn(ctx, recs, d)
		}}),
	},
	"failures are counted up to two": {
		"concurrency/a random concurrent history: one live owner at a time, done is done, states go up, and no count is lost",
		opened(store{release: func(s *memstore.Store, ctx context.Context, rs []dedupe.ReleaseRequest) []dedupe.Reply {
			return s.Release(ctx, changed(rs, func(r *dedupe.ReleaseRequest) { r.Failed = r.Failed && record(s, r.Key).Failures < 2 }))
		}}),
	},
	"the second failure of a claim alone is not counted": {
		"histories/a random history is answered as by a plain map",
		opened(store{release: func(s *memstore.Store, ctx context.Context, rs []dedupe.ReleaseRequest) []dedupe.Reply {
			return s.Release(ctx, changed(rs, func(r *dedupe.ReleaseRequest) {
				rec := record(s, r.Key)
				r.Failed = r.Failed && !(rec.Alone && rec.Failures > 0)
			}))
		}}),
	},
	"a purge of nothing is fine": {
		"failures others met/batch 0 loops, negative retention deletes all",
		openedLog(log{purge: func(l *memstore.Log, ctx context.Context, scope string, staleAfter time.Duration, limit int) (int, error) {
			if limit <= 0 {
				return 0, nil
			}
			return l.Purge(ctx, scope, staleAfter, limit)
		}}),
	},
	"a negative age is all ages": {
		"failures others met/batch 0 loops, negative retention deletes all",
		openedLog(log{purge: func(l *memstore.Log, ctx context.Context, scope string, staleAfter time.Duration, limit int) (int, error) {
			return l.Purge(ctx, scope, max(staleAfter, 1), limit)
		}}),
	},
	"a purge has no limit": {
		"failures others met/unbounded purge",
		openedLog(log{purge: func(l *memstore.Log, ctx context.Context, scope string, staleAfter time.Duration, _ int) (int, error) {
			return l.Purge(ctx, scope, staleAfter, 1<<30)
		}}),
	},
	"a purge is ahead of time": {
		"failures others met/purge at start before the redeliveries arrive",
		openedLog(log{ahead: 2 * time.Hour}),
	},
	"a reaper's clock is ahead": {
		"failures others met/reaper deletes a live lock",
		openedLog(log{ahead: 20 * time.Minute}),
	},
	"a restored log keeps its incarnation": {
		"log/a claim made before Restored can be neither renewed nor settled after it",
		openedLog(log{restored: func(l *memstore.Log) (dedupe.Incarnation, error) { return l.Incarnation(context.Background()) }}),
	},
	"a completion says which incarnation it likes": {
		"log/a grip of another incarnation settles nothing",
		openedLog(log{complete: func(l *memstore.Log, ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply {
			return l.Complete(ctx, changed(rs, func(r *dedupe.CompleteRequest) { r.Incarnation = record(l, r.Key).Incarnation }))
		}}),
	},
	"no row was inserted, so it is done": {
		"failures others met/the same id twice in one batch, unclaimed",
		openedLog(log{complete: func(l *memstore.Log, ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply {
			replies := l.Complete(ctx, rs)
			for i := range replies {
				if replies[i].Verdict == dedupe.Done {
					replies[i].Verdict, replies[i].Err = dedupe.Claimed, nil
				}
			}
			return replies
		}}),
	},
	"two modes share a scope": {
		"log/a scope that runs in another mode is refused until the mode is changed",
		openedLog(log{enter: func(l *memstore.Log, ctx context.Context, s dedupe.ScopeRow) (dedupe.ScopeRow, error) {
			row, err := l.Enter(ctx, s)
			if errors.Is(err, dedupe.ErrWrongMode) {
				return row, nil
			}
			return row, err
		}}),
	},
	"a log learns": {
		"learn/a log is not told: errors.ErrUnsupported for each record, and nothing is written",
		openedLog(log{learn: func(recs []dedupe.Record) []error { return make([]error, len(recs)) }}),
	},
}

// watching remembers which keys it saw expired, and takes them whatever became of them.
type watching struct {
	*memstore.Store
	expired *sync.Map
}

func (w watching) Inspect(ctx context.Context, keys []dedupe.Key) ([]dedupe.Record, error) {
	recs, err := w.Store.Inspect(ctx, keys)
	for _, rec := range recs {
		if rec.State == dedupe.StateClaimed && rec.LeaseLeft <= 0 {
			w.expired.Store(rec.Key, true)
		}
	}
	return recs, err
}

func (w watching) Claim(ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
	for _, r := range rs {
		if _, seen := w.expired.LoadAndDelete(r.Key); seen {
			forgetKey(w.Store, r.Key)
		}
	}
	return w.Store.Claim(ctx, rs)
}

// changedClaims claims with each request changed.
func changedClaims(change func(r *dedupe.ClaimRequest)) func(now func() time.Time) dedupe.Store {
	return opened(store{claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
		return s.Claim(ctx, changed(rs, change))
	}})
}

func changedCompletes(change func(r *dedupe.CompleteRequest)) func(now func() time.Time) dedupe.Store {
	return opened(store{complete: func(s *memstore.Store, ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply {
		return s.Complete(ctx, changed(rs, change))
	}})
}

func changed[R any](rs []R, change func(*R)) []R {
	rs = append([]R(nil), rs...)
	for i := range rs {
		change(&rs[i])
	}
	return rs
}

// otherKeys is a store whose keys are made by another rule; the answers carry the right ones, so that nothing else is wrong.
func otherKeys(rule func(scope, namespace, id string) (string, string, string)) func(now func() time.Time) dedupe.Store {
	other := func(k dedupe.Key) dedupe.Key {
		made, err := dedupe.NewKey(rule(k.Scope(), k.Namespace(), k.ID()))
		if err != nil {
			return k
		}
		return made
	}
	return opened(store{
		claim: func(s *memstore.Store, ctx context.Context, rs []dedupe.ClaimRequest) []dedupe.Reply {
			replies := s.Claim(ctx, changed(rs, func(r *dedupe.ClaimRequest) { r.Key = other(r.Key) }))
			for i := range replies {
				replies[i].Record.Key = rs[i].Key
			}
			return replies
		},
		complete: func(s *memstore.Store, ctx context.Context, rs []dedupe.CompleteRequest) []dedupe.Reply {
			return s.Complete(ctx, changed(rs, func(r *dedupe.CompleteRequest) { r.Key = other(r.Key) }))
		},
	})
}

func forgetKey(s dedupe.Store, k dedupe.Key) {
	err := s.Forget(context.Background(), k, dedupe.Audit{})
	if err != nil && !errors.Is(err, dedupe.ErrBusy) {
		panic(err)
	}
}

func record(s dedupe.Store, k dedupe.Key) dedupe.Record {
	recs, err := s.Inspect(context.Background(), []dedupe.Key{k})
	if err != nil {
		panic(err)
	}
	return recs[0]
}

// overwriting notes the mode of whoever came last.
type overwriting struct{ *memstore.Store }

func (s overwriting) NoteMode(ctx context.Context, scope string, m dedupe.Mode) (dedupe.Mode, error) {
	return m, s.ChangeMode(ctx, scope, m, dedupe.Audit{})
}
