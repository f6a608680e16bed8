package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var logs = []behaviour{
	{log, "the incarnation stays the same until Restored, and is never empty", func(t *testing.T, s *subject) {
		for range 2 {
			equal(t, "incarnation", s.incarnationNow(t), s.incarnation)
		}
		if s.incarnation == "" {
			t.Fatal("incarnation is empty")
		}
		before := s.incarnation
		s.restored(t)
		if s.incarnation == before || s.incarnation == "" {
			t.Fatalf("incarnation is %q after Restored, it was %q", s.incarnation, before)
		}
		equal(t, "incarnation", s.incarnationNow(t), s.incarnation)
	}},
	{log, "a log ignores the incarnation of a claim request and takes its own", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		for _, told := range []dedupe.Incarnation{"another", "", s.incarnation} {
			r.Incarnation = told
			reply := s.claim(t, r)
			isClaimed(t, reply)
			equal(t, "incarnation", reply.Record.Incarnation, s.incarnation)
		}
		isClaimed(t, s.complete(t, completeRequest(s.grip(r.Key, r.Owner))))
		r.Owner, r.Incarnation = newOwner(), "another"
		isVerdict(t, s.claim(t, r), dedupe.Done)
	}},
	{log, "a claim made before Restored can be neither renewed nor settled after it", func(t *testing.T, s *subject) {
		old := s.claimed(t, s.key(t, "1"))
		s.restored(t)
		before := s.inspect(t, old.Key)
		now := s.grip(old.Key, old.Owner) // the row is of the old incarnation, whatever the grip says
		for _, g := range []dedupe.Grip{old, now} {
			for op, reply := range map[string]dedupe.Reply{
				"renew":    s.renew(t, renewRequest(g)),
				"complete": s.complete(t, completeRequest(g)),
				"release":  s.release(t, failedRequest(g)),
				"bury":     s.bury(t, buryRequest(g)),
			} {
				if !errors.Is(reply.Err, dedupe.ErrStale) {
					t.Errorf("%s after Restored answered %v, want ErrStale", op, say(reply))
				}
			}
		}
		sameRecord(t, "the record", s.inspect(t, old.Key), before)
	}},
	{log, "a grip of another incarnation settles nothing", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		other := dedupe.Grip{Key: g.Key, Owner: g.Owner, Incarnation: "another"}
		none := dedupe.Grip{Key: g.Key, Owner: g.Owner}
		isStale(t, s.complete(t, completeRequest(other)), dedupe.Busy)
		isStale(t, s.complete(t, completeRequest(none)), dedupe.Busy)
		isClaimed(t, s.complete(t, completeRequest(g)))
	}},
	{log, "a claim asked for again after Restored is either not Claimed or can be completed", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		isClaimed(t, s.claim(t, r))
		s.restored(t)
		if reply := s.claim(t, r); reply.Verdict == dedupe.Claimed {
			isClaimed(t, s.complete(t, completeRequest(dedupe.Grip{Key: r.Key, Owner: r.Owner, Incarnation: reply.Record.Incarnation})))
		}
	}},
	{log, "done stays done after Restored, and its record carries the present incarnation", func(t *testing.T, s *subject) {
		g := s.done(t, s.key(t, "1"))
		s.restored(t)
		reply := s.claim(t, s.claimRequest(g.Key, newOwner()))
		isVerdict(t, reply, dedupe.Done)
		equal(t, "incarnation of the reply", reply.Record.Incarnation, s.incarnation)
		equal(t, "incarnation", s.inspect(t, g.Key).Incarnation, s.incarnation)
		r := completeRequest(s.grip(g.Key, newOwner()))
		r.Unclaimed = true
		reply = s.complete(t, r)
		isStale(t, reply, dedupe.Done)
		equal(t, "incarnation of a stale reply", reply.Record.Incarnation, s.incarnation)
	}},
	{log, "dead of another incarnation is free for every delivery, in the next generation", func(t *testing.T, s *subject) {
		keys := map[string]dedupe.Key{}
		for _, op := range []string{"claim", "complete", "release failed", "bury"} {
			keys[op] = s.key(t, op)
			s.failed(t, keys[op])
			s.dead(t, keys[op])
		}
		s.restored(t)
		for op, k := range keys {
			before := s.inspect(t, k)
			equal(t, "incarnation before "+op, before.Incarnation == s.incarnation, false)
			reply := only(t, operations[op].do(t, s, op != "claim", []dedupe.Grip{s.grip(k, newOwner())}))
			isClaimed(t, reply)
			equal(t, "state after "+op, reply.Record.State, operations[op].to)
			equal(t, "incarnation after "+op, reply.Record.Incarnation, s.incarnation)
			if op != "bury" {
				equal(t, "generation after "+op, reply.Record.Generation, 1)
			}
		}
		equal(t, "failures", s.inspect(t, keys["claim"]).Failures, 0)
		equal(t, "failures", s.inspect(t, keys["release failed"]).Failures, 1)
	}},
	{log, "counts of a free row outlive Restored", func(t *testing.T, s *subject) {
		g := s.failed(t, s.key(t, "1"))
		s.restored(t)
		reply := s.claim(t, s.claimRequest(g.Key, newOwner()))
		isClaimed(t, reply)
		equal(t, "failures", reply.Record.Failures, 1)
		equal(t, "incarnation", reply.Record.Incarnation, s.incarnation)
		isClaimed(t, s.complete(t, completeRequest(dedupe.Grip{Key: g.Key, Owner: reply.Record.Owner, Incarnation: s.incarnation})))
	}},
	{log, "the first to enter a scope writes its row, and all others read it", func(t *testing.T, s *subject) {
		row := dedupe.ScopeRow{Scope: s.scope, Mode: dedupe.Transactional, Retention: 24 * time.Hour, Incarnation: "ignored"}
		for range 2 {
			got, err := s.log.Enter(t.Context(), row)
			if err != nil {
				t.Fatalf("Enter: %v", err)
			}
			equal(t, "row", got, dedupe.ScopeRow{Scope: s.scope, Mode: dedupe.Transactional, Retention: 24 * time.Hour, Incarnation: s.incarnation})
		}
	}},
	{log, "the larger retention is kept", func(t *testing.T, s *subject) {
		for _, r := range []struct{ entered, want time.Duration }{{24 * time.Hour, 24 * time.Hour}, {time.Hour, 24 * time.Hour}, {48 * time.Hour, 48 * time.Hour}, {time.Hour, 48 * time.Hour}} {
			got, err := s.log.Enter(t.Context(), dedupe.ScopeRow{Scope: s.scope, Mode: dedupe.Logged, Retention: r.entered})
			if err != nil {
				t.Fatalf("Enter: %v", err)
			}
			equal(t, "retention", got.Retention, r.want)
		}
	}},
	{log, "a scope that runs in another mode is refused until the mode is changed", func(t *testing.T, s *subject) {
		enter := func(m dedupe.Mode) error {
			_, err := s.log.Enter(t.Context(), dedupe.ScopeRow{Scope: s.scope, Mode: m, Retention: retention})
			return err
		}
		if err := enter(dedupe.Logged); err != nil {
			t.Fatalf("Enter: %v", err)
		}
		if err := enter(dedupe.Transactional); !errors.Is(err, dedupe.ErrWrongMode) {
			t.Fatalf("Enter in another mode: %v, want ErrWrongMode", err)
		}
		if err := enter(dedupe.Logged); err != nil {
			t.Fatalf("Enter in the same mode after a refusal: %v", err)
		}
		if err := s.log.ChangeMode(t.Context(), s.scope, dedupe.Transactional, audit); err != nil {
			t.Fatalf("ChangeMode: %v", err)
		}
		if err := enter(dedupe.Transactional); err != nil {
			t.Fatalf("Enter after ChangeMode: %v", err)
		}
		if err := enter(dedupe.Logged); !errors.Is(err, dedupe.ErrWrongMode) {
			t.Fatalf("Enter in the old mode: %v, want ErrWrongMode", err)
		}
	}},
	{log, "the mode of a scope that nobody has entered cannot be changed", func(t *testing.T, s *subject) {
		if err := s.log.ChangeMode(t.Context(), s.scope, dedupe.Logged, audit); err == nil {
			t.Error("ChangeMode of an unknown scope: no error")
		}
		row, err := s.log.Enter(t.Context(), dedupe.ScopeRow{Scope: s.scope, Mode: dedupe.Transactional, Retention: retention})
		if err != nil {
			t.Fatalf("Enter: %v", err)
		}
		equal(t, "mode", row.Mode, dedupe.Transactional)
	}},
	{log, "an invalid mode is neither entered nor changed to", func(t *testing.T, s *subject) {
		if _, err := s.log.Enter(t.Context(), dedupe.ScopeRow{Scope: s.scope, Retention: retention}); err == nil {
			t.Error("Enter with the zero mode: no error")
		}
		if _, err := s.log.Enter(t.Context(), dedupe.ScopeRow{Scope: s.scope, Mode: dedupe.Logged, Retention: retention}); err != nil {
			t.Fatalf("Enter: %v", err)
		}
		if err := s.log.ChangeMode(t.Context(), s.scope, 0, audit); err == nil {
			t.Error("ChangeMode to the zero mode: no error")
		}
		if _, err := s.log.Enter(t.Context(), dedupe.ScopeRow{Scope: s.scope, Mode: dedupe.Logged, Retention: retention}); err != nil {
			t.Fatalf("Enter after a refused change: %v", err)
		}
	}},
	{log, "two scopes have a row each", func(t *testing.T, s *subject) {
		for scope, m := range map[string]dedupe.Mode{s.scope: dedupe.Logged, s.scope + ".x": dedupe.Transactional, "T" + s.scope[1:]: dedupe.Transactional} {
			got, err := s.log.Enter(t.Context(), dedupe.ScopeRow{Scope: scope, Mode: m, Retention: retention})
			if err != nil {
				t.Fatalf("Enter: %v", err)
			}
			equal(t, "mode", got.Mode, m)
		}
	}},
	{log, "identity is equal to itself and comparable", func(t *testing.T, s *subject) {
		equal(t, "identity", s.log.Identity() == s.log.Identity(), true)
		equal(t, "identity is nil", s.log.Identity() == nil, false)
	}},
}

func (s *subject) incarnationNow(t *testing.T) dedupe.Incarnation {
	t.Helper()
	inc, err := s.log.Incarnation(t.Context())
	if err != nil {
		t.Fatalf("Incarnation: %v", err)
	}
	return inc
}

// restored gives the log a new incarnation, which the subject uses from then on.
func (s *subject) restored(t *testing.T) {
	t.Helper()
	inc, err := s.log.Restored(t.Context(), audit)
	if err != nil {
		t.Fatalf("Restored: %v", err)
	}
	s.incarnation = inc
}
