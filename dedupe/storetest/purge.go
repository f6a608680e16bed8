package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var purging = []behaviour{
	{log, "purge deletes done rows whose retention is over, stale free rows and stale expired claims, and nothing else", func(t *testing.T, s *subject) {
		gone := []dedupe.Key{s.doneFor(t, "done, over", short), s.failed(t, s.key(t, "free, stale")).Key, s.expired(t, s.key(t, "expired, stale")).Key}
		kept := []dedupe.Key{s.doneFor(t, "done, retained", retention), s.claimed(t, s.key(t, "claimed")).Key, s.dead(t, s.key(t, "dead")).Key}
		s.h.Advance(t, past)
		equal(t, "purged", s.purge(t, short, 100), len(gone))
		for _, k := range gone {
			equal(t, "state of "+k.ID(), s.inspect(t, k).State, dedupe.StateAbsent)
		}
		for _, k := range kept {
			equal(t, "absent: "+k.ID(), s.inspect(t, k).State == dedupe.StateAbsent, false)
		}
		equal(t, "purged again", s.purge(t, short, 100), 0)
	}},
	{log, "a free row and an expired claim are kept until they are stale, with their counts", func(t *testing.T, s *subject) {
		free, expired := s.failed(t, s.key(t, "free")).Key, s.expired(t, s.key(t, "expired")).Key
		equal(t, "purged", s.purge(t, time.Hour, 100), 0)
		equal(t, "failures", s.inspect(t, free).Failures, 1)
		equal(t, "deaths", s.claim(t, s.claimRequest(expired, newOwner())).Record.Deaths, 1)
	}},
	{log, "dead is never purged", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		g := s.claimed(t, k)
		r := buryRequest(g)
		r.Retention = time.Millisecond
		isClaimed(t, s.bury(t, r))
		s.h.Advance(t, past)
		equal(t, "purged", s.purge(t, time.Millisecond, 100), 0)
		equal(t, "state", s.inspect(t, k).State, dedupe.StateDead)
	}},
	{log, "a done row whose retention is over is Done until it is purged", func(t *testing.T, s *subject) {
		k := s.doneFor(t, "1", short)
		s.h.Advance(t, past)
		isVerdict(t, s.claim(t, s.claimRequest(k, newOwner())), dedupe.Done)
		equal(t, "state", s.inspect(t, k).State, dedupe.StateDone)
		r := completeRequest(s.grip(k, newOwner()))
		r.Unclaimed = true
		isStale(t, s.complete(t, r), dedupe.Done)
		equal(t, "purged", s.purge(t, time.Hour, 100), 1)
		isClaimed(t, s.claim(t, s.claimRequest(k, newOwner())))
	}},
	{log, "purge touches its scope only", func(t *testing.T, s *subject) {
		other := *s
		other.scope += ".x"
		k := other.failed(t, other.key(t, "1")).Key
		s.h.Advance(t, past)
		equal(t, "purged", s.purge(t, short, 100), 0)
		equal(t, "state", s.inspect(t, k).State, dedupe.StateFree)
	}},
	{log, "purge deletes at most limit rows, and fewer than limit means that nothing is left", func(t *testing.T, s *subject) {
		for i := range 5 {
			s.doneFor(t, fmt.Sprint("done ", i), short)
			s.failed(t, s.key(t, fmt.Sprint("free ", i)))
		}
		s.h.Advance(t, past)
		for _, want := range []int{4, 4, 2, 0} {
			equal(t, "purged", s.purge(t, short, 4), want)
		}
	}},
}

// doneFor makes a key done that may be forgotten after d.
func (s *subject) doneFor(t *testing.T, id string, d time.Duration) dedupe.Key {
	t.Helper()
	r := completeRequest(s.claimed(t, s.key(t, id)))
	r.Retention = d
	isClaimed(t, s.complete(t, r))
	return r.Key
}

func (s *subject) purge(t *testing.T, staleAfter time.Duration, limit int) int {
	t.Helper()
	n, err := s.log.Purge(t.Context(), s.scope, staleAfter, limit)
	if err != nil {
		t.Fatalf("Purge: %v", err)
	}
	return n
}
