package storetest

import (
	"errors"
	"testing"

	"github.com/idemq/idemq/dedupe"
)

var audit = dedupe.Audit{By: "mira", Reason: "sent again: 'stock' is back"}

var operator = []behaviour{
	{every, "an unknown key is inspected as absent, under its name and with nothing else", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		sameRecord(t, "the record", s.inspect(t, k), dedupe.Record{Key: k})
	}},
	{every, "inspect changes nothing, not even an expired claim", func(t *testing.T, s *subject) {
		g := s.expired(t, s.key(t, "1"))
		for range 2 {
			rec := s.inspect(t, g.Key)
			equal(t, "state", rec.State, dedupe.StateClaimed)
			equal(t, "owner", rec.Owner, g.Owner)
			if rec.LeaseLeft > 0 {
				t.Fatalf("lease left is %v after the lease ended", rec.LeaseLeft)
			}
		}
		isClaimed(t, s.complete(t, completeRequest(g)))
	}},
	{every, "reopen turns dead into free: next generation, counts 0, fingerprint cleared, the incarnation as it was, and who did it as the reason", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		s.expired(t, k)
		s.dead(t, k) // a takeover, then dead
		before := s.inspect(t, k).Incarnation
		rec, err := s.Reopen(t.Context(), k, audit)
		if err != nil {
			t.Fatalf("Reopen: %v", err)
		}
		equal(t, "state", rec.State, dedupe.StateFree)
		equal(t, "failures, deaths, deaths alone, generation", counts(rec), [4]int{0, 0, 0, 1})
		equal(t, "fingerprint", rec.Fingerprint, dedupe.Fingerprint{})
		equal(t, "incarnation", rec.Incarnation, before)
		equal(t, "reason", rec.Reason, "mira: sent again: 'stock' is back")
		sameRecord(t, "what Inspect says", s.inspect(t, k), rec)
		reply := s.claim(t, s.claimRequest(k, newOwner())) // no mark needed
		isClaimed(t, reply)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{0, 0, 0, 1})
	}},
	{every, "reopen of a key that is not dead is ErrNotDead, with the record as it is, and changes nothing", func(t *testing.T, s *subject) {
		for _, state := range []string{"absent", "free", "claimed", "done"} {
			k := s.key(t, state)
			bring[state](t, s, s.grip(k, newOwner()))
			before := s.inspect(t, k)
			rec, err := s.Reopen(t.Context(), k, audit)
			if !errors.Is(err, dedupe.ErrNotDead) {
				t.Fatalf("Reopen of a key that is %s: %v, want ErrNotDead", state, err)
			}
			sameRecord(t, "the returned record", rec, before)
			sameRecord(t, "the record", s.inspect(t, k), before)
		}
	}},
	{every, "reopen twice is ErrNotDead the second time", func(t *testing.T, s *subject) {
		g := s.dead(t, s.key(t, "1"))
		if _, err := s.Reopen(t.Context(), g.Key, audit); err != nil {
			t.Fatalf("Reopen: %v", err)
		}
		if _, err := s.Reopen(t.Context(), g.Key, audit); !errors.Is(err, dedupe.ErrNotDead) {
			t.Fatalf("Reopen again: %v, want ErrNotDead", err)
		}
		equal(t, "generation", s.inspect(t, g.Key).Generation, 1)
	}},
	{every, "the one that buried a key cannot bury it again after it was reopened", func(t *testing.T, s *subject) {
		g := s.dead(t, s.key(t, "1"))
		if _, err := s.Reopen(t.Context(), g.Key, audit); err != nil {
			t.Fatalf("Reopen: %v", err)
		}
		isStale(t, s.bury(t, buryRequest(g)), 0)
		equal(t, "state", s.inspect(t, g.Key).State, dedupe.StateFree)
	}},
	{every, "forget removes a key in every state but a live claim, and its next delivery is new", func(t *testing.T, s *subject) {
		for _, state := range []string{"absent", "free", "dead", "done"} {
			k := s.key(t, state)
			bring[state](t, s, s.grip(k, newOwner()))
			forget(t, s, k)
		}
		forget(t, s, s.expired(t, s.key(t, "expired")).Key)
	}},
	{every, "forget of a live claim is ErrBusy and changes nothing", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		if err := s.Forget(t.Context(), g.Key, audit); !errors.Is(err, dedupe.ErrBusy) {
			t.Fatalf("Forget of a live claim: %v, want ErrBusy", err)
		}
		isClaimed(t, s.complete(t, completeRequest(g)))
	}},
	{every, "check of an ordinary store answers", func(t *testing.T, s *subject) {
		findings, err := s.Check(t.Context(), dedupe.CheckEnv{Scope: s.scope, Mode: dedupe.Logged, Lease: live, Retention: retention, Concurrency: 1})
		if err != nil {
			t.Fatalf("Check: %v", err)
		}
		for _, f := range findings {
			if f.Code == "" || f.What == "" || f.Remedy == "" {
				t.Errorf("finding %+v lacks code, what or remedy", f)
			}
		}
	}},
}

func forget(t *testing.T, s *subject, k dedupe.Key) {
	t.Helper()
	if err := s.Forget(t.Context(), k, audit); err != nil {
		t.Fatalf("Forget of %s: %v", k.ID(), err)
	}
	equal(t, "state", s.inspect(t, k).State, dedupe.StateAbsent)
	reply := s.claim(t, s.claimRequest(k, newOwner()))
	isClaimed(t, reply)
	equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{})
}
