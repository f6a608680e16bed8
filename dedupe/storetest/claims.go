package storetest

import (
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var claims = []behaviour{
	{every, "a new key is claimed and its record says by whom and for how long", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Alone = true
		reply := s.claim(t, r)
		isClaimed(t, reply)
		rec := reply.Record
		equal(t, "state", rec.State, dedupe.StateClaimed)
		equal(t, "owner", rec.Owner, r.Owner)
		equal(t, "fingerprint", rec.Fingerprint, r.Fingerprint)
		equal(t, "alone", rec.Alone, true)
		equal(t, "taken", reply.Taken, false)
		equal(t, "incarnation", rec.Incarnation, s.incarnation)
		equal(t, "failures, deaths, deaths alone, generation", counts(rec), [4]int{})
		if rec.LeaseLeft <= live-time.Minute || rec.LeaseLeft > live {
			t.Fatalf("lease left is %v, want nearly %v", rec.LeaseLeft, live)
		}
	}},
	{every, "the fence of a new key is the store's time in milliseconds", func(t *testing.T, s *subject) {
		first := s.claim(t, s.claimRequest(s.key(t, "1"), newOwner())).Record.Fence
		if first < 1_500_000_000_000 || first > 9_000_000_000_000 {
			t.Fatalf("fence is %d, want milliseconds since 1970", first)
		}
		s.h.Advance(t, past)
		second := s.claim(t, s.claimRequest(s.key(t, "2"), newOwner())).Record.Fence
		if second < first+past.Milliseconds() {
			t.Fatalf("fence of another key is %d after %v, it was %d", second, past, first)
		}
	}},
	{every, "the fence grows with each claim, even within a millisecond", func(t *testing.T, s *subject) {
		k, last := s.key(t, "1"), int64(0)
		for range 20 {
			reply := s.claim(t, s.claimRequest(k, newOwner()))
			isClaimed(t, reply)
			if reply.Record.Fence <= last {
				t.Fatalf("fence is %d after %d", reply.Record.Fence, last)
			}
			last = reply.Record.Fence
			g := s.grip(k, reply.Record.Owner)
			isClaimed(t, s.release(t, handBackRequest(g)))
		}
	}},
	{every, "renew, complete, release and bury keep the fence", func(t *testing.T, s *subject) {
		for _, op := range []string{"renew", "complete", "release failed", "bury"} {
			k := s.key(t, op)
			claimed := s.claim(t, s.claimRequest(k, newOwner())).Record
			isClaimed(t, only(t, operations[op].do(t, s, false, []dedupe.Grip{s.grip(k, claimed.Owner)})))
			equal(t, "fence after "+op, s.inspect(t, k).Fence, claimed.Fence)
		}
	}},
	{every, "the same owner asking again is Claimed with the same fence and nothing is counted", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		first := s.claim(t, r)
		second := s.claim(t, r)
		isClaimed(t, second)
		equal(t, "fence", second.Record.Fence, first.Record.Fence)
		equal(t, "failures, deaths, deaths alone, generation", counts(second.Record), [4]int{})
		equal(t, "taken", second.Taken, false)
	}},
	{every, "the same owner asking again renews the lease", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Lease = short
		isClaimed(t, s.claim(t, r))
		r.Lease = live
		isClaimed(t, s.claim(t, r))
		s.h.Advance(t, past)
		isVerdict(t, s.claim(t, s.claimRequest(r.Key, newOwner())), dedupe.Busy)
	}},
	{every, "the same owner asking again after its lease ended holds the claim again and no death is counted", func(t *testing.T, s *subject) {
		g := s.expired(t, s.key(t, "1"))
		before := s.inspect(t, g.Key)
		reply := s.claim(t, s.claimRequest(g.Key, g.Owner))
		isClaimed(t, reply)
		equal(t, "fence", reply.Record.Fence, before.Fence)
		equal(t, "deaths", reply.Record.Deaths, 0)
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Busy)
	}},
	{every, "a live claim of another is Busy, and the record says for how long", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		reply := s.claim(t, s.claimRequest(g.Key, newOwner()))
		isVerdict(t, reply, dedupe.Busy)
		equal(t, "owner", reply.Record.Owner, g.Owner)
		if left := reply.Record.LeaseLeft; left <= 0 || left > live {
			t.Fatalf("lease left is %v, want more than 0 and at most %v", left, live)
		}
	}},
	{every, "an expired claim is taken over: one death, a larger fence, Taken", func(t *testing.T, s *subject) {
		g := s.expired(t, s.key(t, "1"))
		before := s.inspect(t, g.Key)
		r := s.claimRequest(g.Key, newOwner())
		reply := s.claim(t, r)
		isClaimed(t, reply)
		equal(t, "taken", reply.Taken, true)
		equal(t, "owner", reply.Record.Owner, r.Owner)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{0, 1, 0, 0})
		if reply.Record.Fence <= before.Fence {
			t.Fatalf("fence is %d after %d", reply.Record.Fence, before.Fence)
		}
		again := s.claim(t, r)
		isClaimed(t, again)
		equal(t, "failures, deaths, deaths alone, generation, asked again", counts(again.Record), [4]int{0, 1, 0, 0})
	}},
	{every, "only the death of a claim that ran alone counts as a death alone", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		for i, alone := range []bool{false, true, true, false} {
			r.Owner, r.Alone, r.Lease = newOwner(), alone, short
			reply := s.claim(t, r)
			isClaimed(t, reply)
			want := [][4]int{{}, {0, 1, 0, 0}, {0, 2, 1, 0}, {0, 3, 2, 0}}[i]
			equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), want)
			equal(t, "alone", reply.Record.Alone, alone)
			s.h.Advance(t, past)
		}
	}},
	{every, "failures and deaths survive release, takeover and completion", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		s.expired(t, k)
		s.failed(t, k) // a takeover
		g := s.claimed(t, k)
		equal(t, "failures, deaths, deaths alone, generation", counts(s.inspect(t, k)), [4]int{2, 1, 0, 0})
		isClaimed(t, s.complete(t, completeRequest(g)))
		equal(t, "failures, deaths, deaths alone, generation", counts(s.inspect(t, k)), [4]int{2, 1, 0, 0})
	}},
	{every, "a done key answers Done with its result, for any fingerprint: a store never says Conflict", func(t *testing.T, s *subject) {
		g := s.done(t, s.key(t, "1"))
		r := s.claimRequest(g.Key, newOwner())
		r.Fingerprint = fingerprint("another body")
		reply := s.claim(t, r)
		isVerdict(t, reply, dedupe.Done)
		equal(t, "result", string(reply.Record.Result), "result")
		equal(t, "fingerprint", reply.Record.Fingerprint, fingerprint("body"))
		equal(t, "owner", reply.Record.Owner, g.Owner)
	}},
	{every, "a redriven delivery of a done key is Done", func(t *testing.T, s *subject) {
		g := s.done(t, s.key(t, "1"))
		r := s.claimRequest(g.Key, newOwner())
		r.Redriven = true
		isVerdict(t, s.claim(t, r), dedupe.Done)
	}},
	{every, "a dead key answers Dead with its reason", func(t *testing.T, s *subject) {
		g := s.dead(t, s.key(t, "1"))
		reply := s.claim(t, s.claimRequest(g.Key, newOwner()))
		isVerdict(t, reply, dedupe.Dead)
		equal(t, "reason", reply.Record.Reason, "handler failed 3 times")
	}},
	{every, "a redriven delivery takes a dead key up: next generation, counts 0, its own fingerprint", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		r := s.claimRequest(k, newOwner())
		r.Lease, r.Alone = short, true
		s.claimedWith(t, r)
		s.h.Advance(t, past)
		s.dead(t, k) // a takeover of a claim alone, then dead
		before := s.inspect(t, k)
		equal(t, "failures, deaths, deaths alone, generation", counts(before), [4]int{1, 1, 1, 0})
		r = s.claimRequest(k, newOwner())
		r.Redriven, r.Fingerprint = true, fingerprint("corrected body")
		for range 2 { // the second time it asks again
			reply := s.claim(t, r)
			isClaimed(t, reply)
			equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{0, 0, 0, 1})
			equal(t, "fingerprint", reply.Record.Fingerprint, r.Fingerprint)
			equal(t, "taken", reply.Taken, false)
			if reply.Record.Fence <= before.Fence {
				t.Fatalf("fence is %d after %d", reply.Record.Fence, before.Fence)
			}
		}
	}},
	{every, "a redriven delivery of a key that is not dead raises no generation", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		s.failed(t, k)
		r := s.claimRequest(k, newOwner())
		r.Redriven = true
		reply := s.claim(t, r)
		isClaimed(t, reply)
		equal(t, "failures, deaths, deaths alone, generation", counts(reply.Record), [4]int{1, 0, 0, 0})
	}},
	{told, "done and dead keys of another incarnation count as absent", func(t *testing.T, s *subject) {
		for _, was := range []string{"done", "dead"} {
			k := s.key(t, was)
			s.failed(t, k)
			g := s.grip(k, newOwner())
			bring[was](t, s, g)
			r := s.claimRequest(k, newOwner())
			r.Incarnation = "incarnation-2"
			reply := s.claim(t, r)
			isClaimed(t, reply)
			equal(t, "failures of a "+was+" key", reply.Record.Failures, 0)
			equal(t, "incarnation", reply.Record.Incarnation, "incarnation-2")
			equal(t, "taken", reply.Taken, false)
			r.Incarnation = s.incarnation
			r.Owner = newOwner()
			isVerdict(t, s.claim(t, r), dedupe.Busy)
			isStale(t, s.complete(t, completeRequest(g)), dedupe.Busy)
		}
	}},
	{told, "a live claim of another incarnation is Busy", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		r := s.claimRequest(g.Key, newOwner())
		r.Incarnation = "incarnation-2"
		isVerdict(t, s.claim(t, r), dedupe.Busy)
	}},
	{told, "no incarnation is an incarnation of its own", func(t *testing.T, s *subject) {
		known := s.incarnation
		s.incarnation = "" // RedisOnly
		g := s.done(t, s.key(t, "1"))
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Done)
		s.incarnation = known
		isClaimed(t, s.claim(t, s.claimRequest(g.Key, newOwner())))
	}},
}

func counts(r dedupe.Record) [4]int { return [4]int{r.Failures, r.Deaths, r.AloneDeaths, r.Generation} }
