package storetest

import (
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var settling = []behaviour{
	{every, "renew makes the lease last from now", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Lease = short
		g := s.claimedWith(t, r)
		reply := s.renew(t, renewRequest(g))
		isClaimed(t, reply)
		if left := reply.Record.LeaseLeft; left <= live-time.Minute || left > live {
			t.Fatalf("lease left is %v, want nearly %v", left, live)
		}
		s.h.Advance(t, past)
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Busy)
	}},
	{every, "renew of an expired claim that nobody took brings it back and counts nothing", func(t *testing.T, s *subject) {
		g := s.expired(t, s.key(t, "1"))
		reply := s.renew(t, renewRequest(g))
		isClaimed(t, reply)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{})
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Busy)
	}},
	{every, "after a takeover the old owner can neither renew nor settle", func(t *testing.T, s *subject) {
		old := s.expired(t, s.key(t, "1"))
		taker := s.claimed(t, old.Key)
		before := s.inspect(t, old.Key)
		isStale(t, s.renew(t, renewRequest(old)), dedupe.Busy)
		isStale(t, s.complete(t, completeRequest(old)), dedupe.Busy)
		isStale(t, s.release(t, failedRequest(old)), dedupe.Busy)
		isStale(t, s.bury(t, buryRequest(old)), dedupe.Busy)
		sameRecord(t, "the record", s.inspect(t, old.Key), before)
		isClaimed(t, s.complete(t, completeRequest(taker)))
		isStale(t, s.complete(t, completeRequest(old)), dedupe.Done)
	}},
	{every, "complete keeps owner, result, fingerprint and when it may be forgotten", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		r := completeRequest(g)
		r.Fingerprint, r.Result = fingerprint("what was applied"), []byte("42 left")
		rec := s.complete(t, r).Record
		equal(t, "state", rec.State, dedupe.StateDone)
		equal(t, "owner", rec.Owner, g.Owner)
		equal(t, "result", string(rec.Result), "42 left")
		equal(t, "fingerprint", rec.Fingerprint, r.Fingerprint)
		equal(t, "incarnation", rec.Incarnation, s.incarnation)
		isKeptFor(t, rec, retention)
		sameRecord(t, "what Inspect says", s.inspect(t, g.Key), rec)
	}},
	{every, "complete of an expired claim that nobody took makes it done", func(t *testing.T, s *subject) {
		g := s.expired(t, s.key(t, "1"))
		isClaimed(t, s.complete(t, completeRequest(g)))
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Done)
	}},
	{every, "a repeated complete is in place and keeps the first result", func(t *testing.T, s *subject) {
		g := s.done(t, s.key(t, "1"))
		r := completeRequest(g)
		r.Result = []byte("another result")
		reply := s.complete(t, r)
		isClaimed(t, reply)
		equal(t, "result", string(reply.Record.Result), "result")
		equal(t, "result", string(s.inspect(t, g.Key).Result), "result")
	}},
	{every, "release after a failure counts it, once for each owner, and answers the number", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		for want := 1; want <= 3; want++ {
			g := s.claimed(t, k)
			for range 2 {
				reply := s.release(t, failedRequest(g))
				isClaimed(t, reply)
				equal(t, "state", reply.Record.State, dedupe.StateFree)
				equal(t, "owner", reply.Record.Owner, g.Owner)
				equal(t, "failures", reply.Record.Failures, want)
			}
		}
		equal(t, "failures", s.inspect(t, k).Failures, 3)
	}},
	{every, "a hand-back counts nothing and keeps what was counted", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		g := s.claimed(t, k)
		for range 2 {
			reply := s.release(t, handBackRequest(g))
			isClaimed(t, reply)
			equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{1, 0, 0, 0})
		}
	}},
	{every, "a released key is claimed at once, and that is no takeover", func(t *testing.T, s *subject) {
		g := s.failed(t, s.key(t, "1"))
		reply := s.claim(t, s.claimRequest(g.Key, newOwner()))
		isClaimed(t, reply)
		equal(t, "taken", reply.Taken, false)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{1, 0, 0, 0})
	}},
	{every, "a release that comes late does not free the claim of the next owner", func(t *testing.T, s *subject) {
		old := s.failed(t, s.key(t, "1"))
		s.claimed(t, old.Key)
		isStale(t, s.release(t, failedRequest(old)), dedupe.Busy)
		equal(t, "failures", s.inspect(t, old.Key).Failures, 1)
	}},
	{told, "a record carries the incarnation that its last write was told, not that of its claim", func(t *testing.T, s *subject) {
		for _, op := range []string{"complete", "release failed", "bury"} {
			g := s.claimed(t, s.key(t, op))
			g.Incarnation = "incarnation-2" // the log's answer carried it
			reply := only(t, operations[op].do(t, s, false, []dedupe.Grip{g}))
			isClaimed(t, reply)
			equal(t, "incarnation after "+op, reply.Record.Incarnation, g.Incarnation)
			equal(t, "incarnation after "+op, s.inspect(t, g.Key).Incarnation, g.Incarnation)
		}
		r := s.claimRequest(s.key(t, "complete"), newOwner())
		r.Incarnation = "incarnation-2"
		isVerdict(t, s.claim(t, r), dedupe.Done)
		r.Incarnation = s.incarnation
		isClaimed(t, s.claim(t, r))
	}},
	{told, "a release or a bury that says no retention keeps the key as long as it was kept", func(t *testing.T, s *subject) {
		free, dead := s.claimed(t, s.key(t, "1")), s.claimed(t, s.key(t, "2"))
		released, buried := failedRequest(free), buryRequest(dead)
		released.Retention, buried.Retention = 0, 0
		isClaimed(t, s.release(t, released))
		isClaimed(t, s.bury(t, buried))
		s.h.Advance(t, past)
		equal(t, "failures", s.inspect(t, free.Key).Failures, 1)
		isVerdict(t, s.claim(t, s.claimRequest(dead.Key, newOwner())), dedupe.Dead)
	}},
	{told, "release takes over the number of failures that the log returned", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		r := failedRequest(g)
		r.Failures = 7
		for range 2 {
			reply := s.release(t, r)
			isClaimed(t, reply)
			equal(t, "failures", reply.Record.Failures, 7)
		}
	}},
	{every, "bury makes the key dead and keeps reason, counts and owner", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		g := s.claimed(t, k)
		for range 2 {
			rec := s.bury(t, buryRequest(g)).Record
			equal(t, "state", rec.State, dedupe.StateDead)
			equal(t, "reason", rec.Reason, "handler failed 3 times")
			equal(t, "owner", rec.Owner, g.Owner)
			equal(t, "incarnation", rec.Incarnation, s.incarnation)
			equal(t, "failures, deaths, deaths alone, generation", counts(rec), [4]int{1, 0, 0, 0})
		}
	}},
	{every, "a key that is taken up again after its letter can be done, failed and buried like any other", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		for generation := 1; generation <= 3; generation++ {
			s.failed2(t, k, generation > 1)
			reply := s.bury(t, buryRequest(s.claimed(t, k)))
			isClaimed(t, reply)
			equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{1, 0, 0, generation - 1})
		}
		r := s.claimRequest(k, newOwner())
		r.Redriven = true
		isClaimed(t, s.complete(t, completeRequest(s.claimedWith(t, r))))
		equal(t, "reason of a done key", s.inspect(t, k).Reason, "")
	}},
}

// failed2 is failed by a delivery that is redriven or not.
func (s *subject) failed2(t *testing.T, k dedupe.Key, redriven bool) {
	t.Helper()
	r := s.claimRequest(k, newOwner())
	r.Redriven = redriven
	isClaimed(t, s.release(t, failedRequest(s.claimedWith(t, r))))
}

// unclaimed writes are those of Transactional mode: the claim lives elsewhere, and the row is written with the effect.
var unclaimed = []behaviour{
	{log, "an unclaimed complete writes a whole row", func(t *testing.T, s *subject) {
		r := completeRequest(s.grip(s.key(t, "1"), newOwner()))
		r.Unclaimed, r.Original = true, "the id before hashing"
		for range 2 { // the second finds its own
			reply := s.complete(t, r)
			isClaimed(t, reply)
			rec := reply.Record
			equal(t, "state", rec.State, dedupe.StateDone)
			equal(t, "owner", rec.Owner, r.Owner)
			equal(t, "fingerprint", rec.Fingerprint, r.Fingerprint)
			equal(t, "original", rec.Original, r.Original)
			equal(t, "result", string(rec.Result), "result")
			equal(t, "incarnation", rec.Incarnation, s.incarnation)
			isKeptFor(t, rec, retention)
		}
	}},
	{log, "an unclaimed complete keeps the counts of the row that it finds", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		s.expired(t, k)
		r := completeRequest(s.grip(k, newOwner()))
		r.Unclaimed = true
		reply := s.complete(t, r)
		isClaimed(t, reply)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{1, 0, 0, 0})
	}},
	{log, "an unclaimed complete, redriven, of a dead key is of the next generation", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		s.dead(t, k)
		r := completeRequest(s.grip(k, newOwner()))
		r.Unclaimed, r.Redriven = true, true
		reply := s.complete(t, r)
		isClaimed(t, reply)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{0, 0, 0, 1})
		equal(t, "reason of a done key", reply.Record.Reason, "")
	}},
	{log, "an unclaimed release counts a failure once for each owner", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		for want := 1; want <= 3; want++ {
			r := failedRequest(s.grip(k, newOwner()))
			r.Unclaimed, r.Original = true, "the id before hashing"
			for range 2 {
				reply := s.release(t, r)
				isClaimed(t, reply)
				equal(t, "state", reply.Record.State, dedupe.StateFree)
				equal(t, "owner", reply.Record.Owner, r.Owner)
				equal(t, "failures", reply.Record.Failures, want)
				equal(t, "fingerprint", reply.Record.Fingerprint, r.Fingerprint)
				equal(t, "original", reply.Record.Original, r.Original)
			}
		}
	}},
	{log, "an unclaimed release counts by itself, whatever number it is told", func(t *testing.T, s *subject) {
		r := failedRequest(s.grip(s.key(t, "1"), newOwner()))
		r.Unclaimed, r.Failures = true, 7
		equal(t, "failures", s.release(t, r).Record.Failures, 1)
	}},
	{log, "an unclaimed release, redriven, of a dead key counts from this failure in the next generation", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		s.expired(t, k)
		s.dead(t, k) // a takeover, then dead
		r := failedRequest(s.grip(k, newOwner()))
		r.Unclaimed, r.Redriven = true, true
		for range 2 {
			reply := s.release(t, r)
			isClaimed(t, reply)
			equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{1, 0, 0, 1})
		}
	}},
	{log, "an unclaimed bury writes a whole row", func(t *testing.T, s *subject) {
		r := buryRequest(s.grip(s.key(t, "1"), newOwner()))
		r.Unclaimed, r.Original = true, "the id before hashing"
		for range 2 {
			reply := s.bury(t, r)
			isClaimed(t, reply)
			equal(t, "state", reply.Record.State, dedupe.StateDead)
			equal(t, "owner", reply.Record.Owner, r.Owner)
			equal(t, "reason", reply.Record.Reason, r.Reason)
			equal(t, "fingerprint", reply.Record.Fingerprint, r.Fingerprint)
			equal(t, "original", reply.Record.Original, r.Original)
		}
	}},
	{log, "an unclaimed bury keeps the counts of the row that it finds", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		r := buryRequest(s.grip(k, newOwner()))
		r.Unclaimed = true
		equal(t, "failures, deaths, deaths alone, generation", counts(s.bury(t, r).Record), [4]int{1, 0, 0, 0})
	}},
}
