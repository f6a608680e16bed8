package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/lua"
)

// Store is a dedupe.Store and dedupe.Memory on Redis: a single server, Sentinel, or a cluster. Safe for concurrent use. It has nothing
// to close: no goroutine of it outlives a PING.
type Store struct {
	rdb     redis.UniversalClient
	cfg     Config
	invalid error // what is wrong with the Config
	nodes   *nodes

	mu       sync.RWMutex
	memories map[string]*memory // by scope: those of which Redis is the authority
	losses   map[string]bool    // by scope: noticed by a Remember that failed afterwards
}

var _ dedupe.Memory = (*Store)(nil)

// New uses rdb as it is; Check reports options of it that hide an outage, NewClient makes one without. New does no I/O and never
// fails: problems of cfg come from Validate, which dedupe.New asks. The client stays the caller's to close.
func New(rdb redis.UniversalClient, cfg Config) *Store {
	err := cfg.setDefaults()
	if rdb == nil {
		err = errors.Join(err, errors.New("redisstore: New: client is nil; make one with NewClient(url)"))
	}
	s := &Store{rdb: rdb, cfg: cfg, invalid: err, memories: map[string]*memory{}, losses: map[string]bool{}}
	if rdb != nil {
		s.nodes = newNodes(rdb, cfg)
	}
	return s
}

// Validate lists every problem of the Config that New was called with, each with field, value and remedy; nil if there is none.
// A Store with a problem answers every call with it.
func (s *Store) Validate() error { return s.invalid }

var (
	claimScript    = newScript(lua.Claim)
	renewScript    = newScript(lua.Renew)
	completeScript = newScript(lua.Complete)
	releaseScript  = newScript(lua.Release)
	buryScript     = newScript(lua.Bury)
	learnScript    = newScript(lua.Learn)
	inspectScript  = newScript(lua.Inspect)
	reopenScript   = newScript(lua.Reopen)
	forgetScript   = newScript(lua.Forget)
	rememberScript = newScript(lua.Remember)
	modeScript     = newScript(lua.Mode)
)

// Claim implements dedupe.Store.
func (s *Store) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	calls := make([]*call, len(reqs))
	for i, r := range reqs {
		calls[i] = s.newCall(claimScript, r.Key, s.vet(r.Key, r.Owner, atLeast("lease", r.Lease)),
			string(r.Owner), string(r.Incarnation), millis(r.Lease), millis(r.Retention), fingerprint(r.Fingerprint), r.Original,
			flag(r.Alone), flag(r.Redriven))
		s.expectMark(calls[i])
	}
	s.run(ctx, calls)
	s.confirmMemory(ctx, calls)
	return replies("claim", calls)
}

// Renew implements dedupe.Store.
func (s *Store) Renew(ctx context.Context, reqs []dedupe.RenewRequest) []dedupe.Reply {
	calls := make([]*call, len(reqs))
	for i, r := range reqs {
		calls[i] = s.newCall(renewScript, r.Key, s.vet(r.Key, r.Owner, atLeast("lease", r.Lease)),
			string(r.Owner), millis(r.Lease), string(r.Incarnation))
	}
	s.run(ctx, calls)
	return replies("renew", calls)
}

// Complete implements dedupe.Store.
func (s *Store) Complete(ctx context.Context, reqs []dedupe.CompleteRequest) []dedupe.Reply {
	calls := make([]*call, len(reqs))
	for i, r := range reqs {
		calls[i] = s.newCall(completeScript, r.Key, s.vet(r.Key, r.Owner, atLeast("retention", r.Retention)),
			string(r.Owner), string(r.Incarnation), millis(r.Retention), fingerprint(r.Fingerprint), r.Original, r.Result,
			flag(r.Unclaimed), flag(r.Redriven))
	}
	s.run(ctx, calls)
	return replies("complete", calls)
}

// Release implements dedupe.Store.
func (s *Store) Release(ctx context.Context, reqs []dedupe.ReleaseRequest) []dedupe.Reply {
	calls := make([]*call, len(reqs))
	for i, r := range reqs {
		calls[i] = s.newCall(releaseScript, r.Key, s.vet(r.Key, r.Owner, nil),
			string(r.Owner), string(r.Incarnation), flag(r.Failed), strconv.Itoa(max(r.Failures, 0)), millis(r.Retention),
			flag(r.Unclaimed), flag(r.Redriven), fingerprint(r.Fingerprint), r.Original)
	}
	s.run(ctx, calls)
	return replies("release", calls)
}

// Bury implements dedupe.Store.
func (s *Store) Bury(ctx context.Context, reqs []dedupe.BuryRequest) []dedupe.Reply {
	calls := make([]*call, len(reqs))
	for i, r := range reqs {
		calls[i] = s.newCall(buryScript, r.Key, s.vet(r.Key, r.Owner, nil),
			string(r.Owner), string(r.Incarnation), millis(r.Retention), r.Reason, flag(r.Unclaimed), fingerprint(r.Fingerprint), r.Original)
	}
	s.run(ctx, calls)
	return replies("bury", calls)
}

// Learn implements dedupe.Store.
func (s *Store) Learn(ctx context.Context, recs []dedupe.Record, retention time.Duration) []error {
	calls := make([]*call, len(recs))
	for i, r := range recs {
		bad := atLeast("retention", retention)
		if states[r.State.String()] == dedupe.StateAbsent {
			bad = errors.Join(bad, fmt.Errorf("a %v record says nothing; Forget removes a key", r.State))
		}
		calls[i] = s.newCall(learnScript, r.Key, s.vet(r.Key, "the log", bad),
			r.State.String(), millis(retention), millis(r.LeaseLeft), strconv.FormatInt(max(r.Fence, 0), 10),
			strconv.Itoa(r.Failures), strconv.Itoa(r.Deaths), strconv.Itoa(r.AloneDeaths), flag(r.Alone), strconv.Itoa(r.Generation),
			string(r.Owner), string(r.Incarnation), fingerprint(r.Fingerprint), r.Original, r.Result, r.Reason)
	}
	s.run(ctx, calls)
	errs := make([]error, len(calls))
	for i, c := range calls {
		errs[i] = opError("learn", c.about, c.err)
	}
	return errs
}

// Inspect implements dedupe.Store. Its errors are never dedupe.ErrOutcomeUnknown.
func (s *Store) Inspect(ctx context.Context, keys []dedupe.Key) ([]dedupe.Record, error) {
	calls := make([]*call, len(keys))
	for i, k := range keys {
		calls[i] = s.newCall(inspectScript, k, s.vet(k, "nobody", nil))
	}
	s.run(ctx, calls)
	recs := make([]dedupe.Record, len(calls))
	for i, c := range calls {
		if c.err != nil {
			return nil, opError("inspect", c.about, readOnly(c.err))
		}
		recs[i] = c.record
	}
	return recs, nil
}

// Reopen implements dedupe.Store.
func (s *Store) Reopen(ctx context.Context, k dedupe.Key, a dedupe.Audit) (dedupe.Record, error) {
	c := s.newCall(reopenScript, k, s.vet(k, "operator", nil), a.By+": "+a.Reason)
	s.run(ctx, []*call{c})
	if c.err == nil && c.code == "alive" {
		c.err = dedupe.ErrNotDead
	}
	return c.record, opError("reopen", k, c.err)
}

// Forget implements dedupe.Store. Redis has no place to keep the Audit once the key is gone.
func (s *Store) Forget(ctx context.Context, k dedupe.Key, _ dedupe.Audit) error {
	c := s.newCall(forgetScript, k, s.vet(k, "operator", nil))
	s.run(ctx, []*call{c})
	if c.err == nil && c.code == "busy" {
		c.err = &dedupe.BusyError{Key: k, RetryIn: c.record.LeaseLeft}
	}
	return opError("forget", k, c.err)
}

// vet says what is wrong with a request, nil if nothing is.
func (s *Store) vet(k dedupe.Key, o dedupe.Owner, other error) error {
	var key, owner error
	if k.IsZero() {
		key = fmt.Errorf("%w: key is zero; make one with dedupe.NewKey", dedupe.ErrInvalidID)
	}
	if o == "" {
		owner = errors.New("owner is empty; every delivery attempt has a random one")
	}
	if s.invalid == nil && key == nil && owner == nil && other == nil {
		return nil
	}
	return errors.Join(s.invalid, key, owner, other)
}

func atLeast(field string, d time.Duration) error {
	if d < time.Millisecond {
		return fmt.Errorf("%s %v: at least 1ms", field, d)
	}
	return nil
}

// replies tells what the scripts answered.
func replies(op string, calls []*call) []dedupe.Reply {
	out := make([]dedupe.Reply, len(calls))
	for i, c := range calls {
		if c.err == nil {
			out[i] = c.reply()
		} else {
			out[i].Err = c.err
		}
		out[i].Err = opError(op, c.about, out[i].Err)
	}
	return out
}

func (c *call) reply() dedupe.Reply {
	r := dedupe.Reply{Record: c.record}
	switch c.code {
	case "ok", "claimed":
		r.Verdict = dedupe.Claimed
	case "taken":
		r.Verdict, r.Taken = dedupe.Claimed, true
	case "busy":
		r.Verdict = dedupe.Busy
	case "done":
		r.Verdict = dedupe.Done
	case "dead":
		r.Verdict = dedupe.Dead
	case "stale":
		r.Verdict, r.Err = settledBy[c.record.State], dedupe.ErrStale
	default:
		r.Err = errReply
	}
	return r
}

// settledBy is the verdict about a key that is not the caller's.
var settledBy = map[dedupe.State]dedupe.Verdict{
	dedupe.StateClaimed: dedupe.Busy,
	dedupe.StateDone:    dedupe.Done,
	dedupe.StateDead:    dedupe.Dead,
}
