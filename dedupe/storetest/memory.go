package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var memories = []behaviour{
	{told, "a done key is forgotten when its retention is over, and not before", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		kept := s.doneFor(t, "2", retention)
		r := completeRequest(g)
		r.Retention = short
		isClaimed(t, s.complete(t, r))
		s.h.Advance(t, past)
		equal(t, "state", s.inspect(t, g.Key).State, dedupe.StateAbsent)
		isClaimed(t, s.claim(t, s.claimRequest(g.Key, newOwner())))
		isVerdict(t, s.claim(t, s.claimRequest(kept, newOwner())), dedupe.Done)
	}},
	{told, "a claim outlives its lease for its retention, so that its death is counted", func(t *testing.T, s *subject) {
		g := s.expired(t, s.key(t, "1"))
		reply := s.claim(t, s.claimRequest(g.Key, newOwner()))
		isClaimed(t, reply)
		equal(t, "deaths", reply.Record.Deaths, 1)
	}},
	{told, "a claim is kept while its lease lasts, however short its retention", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Retention = time.Millisecond
		g := s.claimedWith(t, r)
		s.h.Advance(t, past)
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Busy)
		isClaimed(t, s.renew(t, renewRequest(g)))
		s.h.Advance(t, past)
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Busy)
	}},
	{told, "a renewed claim is kept while its new lease lasts, longer than its retention", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Lease, r.Retention = 5*time.Second, 5*time.Second
		g := s.claimedWith(t, r)
		isClaimed(t, s.renew(t, renewRequest(g)))
		if left := s.inspect(t, g.Key).LeaseLeft; left <= live-time.Minute {
			t.Fatalf("lease left is %v, want nearly %v", left, live)
		}
	}},
	{memory, "a first Remember finds nothing lost, nor does a second", func(t *testing.T, s *subject) {
		for range 2 {
			equal(t, "lost", s.remember(t), false)
		}
		s.done(t, s.key(t, "1"))
		equal(t, "lost", s.remember(t), false)
	}},
	{memory, "after Remember, a memory that was lost answers every Claim of the scope with ErrMemoryLost until it is remembered again", func(t *testing.T, s *subject) {
		s.incarnation = ""
		s.remember(t)
		k := s.done(t, s.key(t, "1")).Key
		s.flush(t)
		replies := s.Claim(t.Context(), []dedupe.ClaimRequest{s.claimRequest(k, newOwner()), s.claimRequest(s.key(t, "2"), newOwner())})
		equal(t, "replies", len(replies), 2)
		for _, reply := range replies {
			if !errors.Is(reply.Err, dedupe.ErrMemoryLost) || dedupe.IsOutage(reply.Err) {
				t.Fatalf("answered %v, want ErrMemoryLost", say(reply))
			}
		}
		equal(t, "state", s.inspect(t, k).State, dedupe.StateAbsent)
		s.remember(t)
		isClaimed(t, s.claim(t, s.claimRequest(k, newOwner()))) // the loss is accepted: it applies again
	}},
	{memory, "a scope that was not remembered does not notice a loss", func(t *testing.T, s *subject) {
		other := *s
		other.scope += ".x"
		other.remember(t)
		s.flush(t)
		isClaimed(t, s.claim(t, s.claimRequest(s.key(t, "1"), newOwner())))
	}},
	{memory, "a claim held when the memory is lost cannot be settled, and says so", func(t *testing.T, s *subject) {
		s.remember(t)
		g := s.claimed(t, s.key(t, "1"))
		s.flush(t)
		for op, reply := range map[string]dedupe.Reply{
			"renew":    s.renew(t, renewRequest(g)),
			"complete": s.complete(t, completeRequest(g)),
			"release":  s.release(t, failedRequest(g)),
			"bury":     s.bury(t, buryRequest(g)),
		} {
			if reply.Err == nil || dedupe.IsOutage(reply.Err) || reply.Verdict != 0 {
				t.Errorf("%s after the loss answered %v, want ErrStale or ErrMemoryLost", op, say(reply))
			}
		}
	}},
	{memory, "the first mode that is noted stays, and every later one is told it", func(t *testing.T, s *subject) {
		equal(t, "noted mode", s.noteMode(t, dedupe.RedisOnly), dedupe.RedisOnly)
		for _, m := range []dedupe.Mode{dedupe.Logged, dedupe.Transactional, dedupe.RedisOnly} {
			equal(t, "noted mode", s.noteMode(t, m), dedupe.RedisOnly)
		}
	}},
	{memory, "a mode is noted for one scope, and claims, done keys and Remember leave it", func(t *testing.T, s *subject) {
		s.noteMode(t, dedupe.RedisOnly)
		s.incarnation = ""
		s.remember(t)
		s.done(t, s.key(t, "1"))
		equal(t, "noted mode", s.noteMode(t, dedupe.Logged), dedupe.RedisOnly)
		other := *s
		other.scope += ".x"
		equal(t, "noted mode of another scope", other.noteMode(t, dedupe.Logged), dedupe.Logged)
	}},
	{memory, "a changed mode is noted, whatever was", func(t *testing.T, s *subject) {
		for _, m := range []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly, dedupe.RedisOnly, dedupe.Transactional} {
			if err := s.memory.ChangeMode(t.Context(), s.scope, m, audit); err != nil {
				t.Fatalf("ChangeMode: %v", err)
			}
			equal(t, "noted mode", s.noteMode(t, dedupe.Logged), m)
		}
	}},
	{memory, "a mode that is none is refused, and not noted", func(t *testing.T, s *subject) {
		_, err := s.memory.NoteMode(t.Context(), s.scope, 0)
		isRefused(t, err)
		isRefused(t, s.memory.ChangeMode(t.Context(), s.scope, 9, audit))
		equal(t, "noted mode", s.noteMode(t, dedupe.Logged), dedupe.Logged)
	}},
	{memory, "a lost memory knows no mode", func(t *testing.T, s *subject) {
		s.noteMode(t, dedupe.RedisOnly)
		s.flush(t)
		equal(t, "noted mode", s.noteMode(t, dedupe.Logged), dedupe.Logged)
	}},
}

func (s *subject) noteMode(t *testing.T, m dedupe.Mode) dedupe.Mode {
	t.Helper()
	noted, err := s.memory.NoteMode(t.Context(), s.scope, m)
	if err != nil {
		t.Fatalf("NoteMode: %v", err)
	}
	return noted
}

func (s *subject) remember(t *testing.T) (lost bool) {
	t.Helper()
	lost, err := s.memory.Remember(t.Context(), s.scope)
	if err != nil {
		t.Fatalf("Remember: %v", err)
	}
	return lost
}

func (s *subject) flush(t *testing.T) {
	t.Helper()
	f, ok := s.h.(Flusher)
	if !ok {
		t.Skip("the harness cannot make the store lose its memory: it is no storetest.Flusher")
	}
	f.Flush(t, s.Store)
}
