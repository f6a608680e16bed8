package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// othersMet are failures that other libraries for the same purpose had, as far as a store can have them.
var othersMet = []behaviour{
	{every, "lease without deadline taken over while alive", func(t *testing.T, s *subject) {
		// A renewed claim outlives its first deadline, and no claim is stored without one.
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Lease = short
		g := s.claimedWith(t, r)
		isClaimed(t, s.renew(t, renewRequest(g)))
		s.h.Advance(t, past)
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Busy)
		r = s.claimRequest(s.key(t, "2"), newOwner())
		r.Lease = 0
		isRefused(t, s.claim(t, r).Err)
		equal(t, "state", s.inspect(t, r.Key).State, dedupe.StateAbsent)
	}},
	{every, "recovery reads, then overwrites a completion", func(t *testing.T, s *subject) {
		g := s.expired(t, s.key(t, "1"))
		if left := s.inspect(t, g.Key).LeaseLeft; left > 0 { // what recovery reads
			t.Fatalf("lease left is %v", left)
		}
		isClaimed(t, s.complete(t, completeRequest(g)))
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Done)
		equal(t, "result", string(s.inspect(t, g.Key).Result), "result")
	}},
	{every, "seconds against milliseconds", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Lease = 90 * time.Second
		if left := s.claim(t, r).Record.LeaseLeft; left < 60*time.Second || left > 90*time.Second {
			t.Fatalf("lease left is %v, want nearly %v", left, r.Lease)
		}
		isClaimed(t, s.claim(t, s.claimRequest(s.expired(t, s.key(t, "2")).Key, newOwner()))) // after milliseconds
		c := completeRequest(s.grip(r.Key, r.Owner))
		c.Retention = 90 * time.Second
		isKeptFor(t, s.complete(t, c).Record, 90*time.Second)
	}},
	{told, "remaining time 0 read as none", func(t *testing.T, s *subject) {
		for _, left := range []time.Duration{0, -time.Hour} {
			rec := s.record(t, left.String(), dedupe.StateClaimed)
			rec.LeaseLeft = left
			s.learn(t, rec)
			reply := s.claim(t, s.claimRequest(rec.Key, newOwner()))
			isClaimed(t, reply)
			equal(t, "taken", reply.Taken, true)
		}
	}},
	{every, "payload check skipped on the fast path", func(t *testing.T, s *subject) {
		// The store says Done, and hands out what the guard needs to see a conflict, however often it is asked.
		g := s.done(t, s.key(t, "1"))
		r := s.claimRequest(g.Key, newOwner())
		r.Fingerprint = fingerprint("another body")
		for range 2 {
			reply := s.claim(t, r)
			isVerdict(t, reply, dedupe.Done)
			equal(t, "differs", reply.Record.Fingerprint.Differs(r.Fingerprint), true)
		}
	}},
	{every, "key parts joined ambiguously", func(t *testing.T, s *subject) {
		seen := map[dedupe.Key]bool{}
		for _, parts := range [][2]string{
			{"", "a:b"},
			{"a", "b"},
			{"a:", "b"},
			{"a", ":b"},
			{":a", "b"},
			{"", ":a:b"},
			{"a:b", "c"},
			{"a", "b:c"},
			{"1:a", "b"},
			{"", "1:a:b"},
			{"1", "a:b"},
			{"}", "{"},
			{"", "}{"},
			{"\x00", "a"},
			{"", "\x00a"},
			{"a\x00", "b"},
			{"a", "\x00b"},
			{"a|b", "c"},
			{"a", "b|c"},
			{"ab", "c"},
			{"a", "bc"},
		} {
			k := s.keyIn(t, parts[0], parts[1])
			seen[k] = true
			reply := s.claim(t, s.claimRequest(k, newOwner()))
			if reply.Verdict != dedupe.Claimed {
				t.Errorf("namespace %q, id %q: %v; it is a message of its own", parts[0], parts[1], say(reply))
			}
		}
		equal(t, "keys", len(seen), 21)
	}},
	{every, "no consumer in the key", func(t *testing.T, s *subject) {
		s.done(t, s.key(t, "1"))
		other := *s
		other.scope += ".x"
		isClaimed(t, other.claim(t, other.claimRequest(other.key(t, "1"), newOwner())))
	}},
	{every, "mark or delete without owner", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		for _, other := range []dedupe.Grip{s.grip(g.Key, newOwner()), s.grip(g.Key, g.Owner+"x"), s.grip(g.Key, g.Owner[1:])} {
			isStale(t, s.complete(t, completeRequest(other)), dedupe.Busy)
			isStale(t, s.release(t, failedRequest(other)), dedupe.Busy)
			isStale(t, s.bury(t, buryRequest(other)), dedupe.Busy)
		}
		isClaimed(t, s.complete(t, completeRequest(g)))
	}},
	{every, "owner is the host name", func(t *testing.T, s *subject) {
		// Two deliveries in one process are two owners: the second is Busy, and cannot settle for the first.
		g := s.claimed(t, s.key(t, "1"))
		second := s.claimRequest(g.Key, newOwner())
		isVerdict(t, s.claim(t, second), dedupe.Busy)
		isStale(t, s.release(t, failedRequest(s.grip(g.Key, second.Owner))), dedupe.Busy)
	}},
	{every, "try-lock loser skips and the winner rolls back", func(t *testing.T, s *subject) {
		winner := s.claimed(t, s.key(t, "1"))
		loser := s.claimRequest(winner.Key, newOwner())
		isVerdict(t, s.claim(t, loser), dedupe.Busy) // not Done: the loser waits
		isClaimed(t, s.release(t, failedRequest(winner)))
		isClaimed(t, s.claim(t, loser))
	}},
	{every, "lease judged by another clock", func(t *testing.T, s *subject) {
		// The store's clock alone decides; what is left crosses the API as a duration.
		g := s.claimed(t, s.key(t, "1"))
		before := s.inspect(t, g.Key).LeaseLeft
		s.h.Advance(t, past)
		if after := s.inspect(t, g.Key).LeaseLeft; after > before-past {
			t.Fatalf("lease left is %v, and it was %v before %v passed", after, before, past)
		}
	}},
	{every, "TTL under a millisecond or a second", func(t *testing.T, s *subject) {
		for _, d := range []time.Duration{time.Millisecond, 1500 * time.Microsecond, 2*time.Millisecond - 1, 999 * time.Millisecond, 1001 * time.Millisecond, 1500*time.Millisecond + 1} {
			r := s.claimRequest(s.key(t, d.String()), newOwner())
			r.Lease, r.Retention = d, d
			isClaimed(t, s.claim(t, r))
			r.Lease, r.Retention = live, retention
			isClaimed(t, s.claim(t, r)) // asked again, or new where 1 ms is over already
			c := completeRequest(s.grip(r.Key, r.Owner))
			c.Retention = d
			reply := s.complete(t, c)
			isClaimed(t, reply)
			equal(t, "state", reply.Record.State, dedupe.StateDone)
		}
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Lease = 999 * time.Microsecond
		isRefused(t, s.claim(t, r).Err)
	}},
	{every, "lock freed at completion, late duplicate accepted", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		r.Lease = short
		isClaimed(t, s.complete(t, completeRequest(s.claimedWith(t, r))))
		s.h.Advance(t, past) // the lease would be over
		isVerdict(t, s.claim(t, s.claimRequest(r.Key, newOwner())), dedupe.Done)
		isVerdict(t, s.claim(t, r), dedupe.Done) // its own claim, executed late
	}},
	{every, "a loser overwrites Succeeded with Failed", func(t *testing.T, s *subject) {
		loser := s.expired(t, s.key(t, "1"))
		winner := s.claimed(t, loser.Key)
		isClaimed(t, s.complete(t, completeRequest(winner)))
		before := s.inspect(t, loser.Key)
		for _, g := range []dedupe.Grip{loser, winner} {
			isStale(t, s.release(t, failedRequest(g)), dedupe.Done)
			isStale(t, s.bury(t, buryRequest(g)), dedupe.Done)
			isStale(t, s.renew(t, renewRequest(g)), dedupe.Done)
		}
		sameRecord(t, "the record", s.inspect(t, loser.Key), before)
	}},
	{every, "duplicate counted as an outage", func(t *testing.T, s *subject) {
		busy, done, dead := s.claimed(t, s.key(t, "1")), s.done(t, s.key(t, "2")), s.dead(t, s.key(t, "3"))
		for i, g := range []dedupe.Grip{busy, done, dead} {
			isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), []dedupe.Verdict{dedupe.Busy, dedupe.Done, dedupe.Dead}[i])
		}
	}},
	{every, "a store's error taken for success, or for not acquired", func(t *testing.T, s *subject) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, k := range []dedupe.Key{s.key(t, "new"), s.claimed(t, s.key(t, "busy")).Key, s.done(t, s.key(t, "done")).Key} {
			reply := only(t, s.Claim(ctx, []dedupe.ClaimRequest{s.claimRequest(k, newOwner())}))
			if reply.Verdict != 0 || !dedupe.IsOutage(reply.Err) {
				t.Errorf("a call that cannot reach the store answers %v, want an outage and no verdict", say(reply))
			}
		}
	}},
	{every, "a statement executed a second time after a read timeout", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		r := s.claimRequest(k, newOwner())
		for _, op := range []string{"release failed", "bury"} {
			isClaimed(t, s.claim(t, r))
			isClaimed(t, s.claim(t, r))
			g := s.grip(k, r.Owner)
			first := only(t, operations[op].do(t, s, false, []dedupe.Grip{g}))
			second := only(t, operations[op].do(t, s, false, []dedupe.Grip{g}))
			isClaimed(t, second)
			sameRecord(t, "the record after "+op+" again", second.Record, first.Record)
			r = s.claimRequest(k, newOwner())
			r.Redriven = true
		}
		equal(t, "failures, deaths, deaths alone, generation", counts(s.inspect(t, k)), [4]int{1, 0, 0, 0})
	}},
	{every, "the insert sees the row and the read does not", func(t *testing.T, s *subject) {
		for i := range 20 {
			k := s.key(t, string(rune('a'+i)))
			equal(t, "state", s.inspect(t, k).State, dedupe.StateAbsent)
			g := s.claimed(t, k)
			equal(t, "state", s.inspect(t, k).State, dedupe.StateClaimed)
			isClaimed(t, s.complete(t, completeRequest(g)))
			equal(t, "state", s.inspect(t, k).State, dedupe.StateDone)
		}
	}},
	{every, "check, then insert: both run", func(t *testing.T, s *subject) {
		for i := range 20 {
			k := s.key(t, fmt.Sprint(i))
			won := 0
			for _, reply := range together(2, func(int) dedupe.Reply { return s.claim1(t, s.claimRequest(k, newOwner())) }) {
				if reply.Verdict == dedupe.Claimed {
					won++
				}
			}
			equal(t, "winners", won, 1)
		}
	}},
	{every, "serialization failure not retried", batchesInOtherOrders},
	{every, "dead-letter replay refused as a duplicate", func(t *testing.T, s *subject) {
		g := s.dead(t, s.key(t, "1"))
		r := s.claimRequest(g.Key, newOwner())
		isVerdict(t, s.claim(t, r), dedupe.Dead)
		r.Redriven = true
		isClaimed(t, s.claim(t, r))
		isClaimed(t, s.complete(t, completeRequest(s.grip(r.Key, r.Owner))))
	}},
	{every, "the same id twice in one batch", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		replies := s.Claim(t.Context(), []dedupe.ClaimRequest{s.claimRequest(k, newOwner()), s.claimRequest(s.key(t, "2"), newOwner()), s.claimRequest(k, newOwner())})
		equal(t, "replies", len(replies), 3)
		isClaimed(t, replies[0])
		isClaimed(t, replies[1])
		isVerdict(t, replies[2], dedupe.Busy)
	}},
	{log, "the same id twice in one batch, unclaimed", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		first, second := completeRequest(s.grip(k, newOwner())), completeRequest(s.grip(k, newOwner()))
		first.Unclaimed, second.Unclaimed = true, true
		replies := s.Complete(t.Context(), []dedupe.CompleteRequest{first, second, first})
		equal(t, "replies", len(replies), 3)
		isClaimed(t, replies[0])
		isStale(t, replies[1], dedupe.Done)
		isClaimed(t, replies[2])
	}},
	{every, "retention of zero or less forgets at once", func(t *testing.T, s *subject) {
		for _, d := range []time.Duration{0, -time.Hour, time.Millisecond - 1} {
			r := s.claimRequest(s.key(t, d.String()), newOwner())
			r.Retention = d
			reply := s.claim(t, r) // refused, or kept while the lease lasts
			if reply.Err != nil {
				isRefused(t, reply.Err)
				r.Retention = retention
				isClaimed(t, s.claim(t, r))
			}
			isVerdict(t, s.claim(t, s.claimRequest(r.Key, newOwner())), dedupe.Busy)
			c := completeRequest(s.grip(r.Key, r.Owner))
			c.Retention = d
			isRefused(t, s.complete(t, c).Err)
			equal(t, "state", s.inspect(t, r.Key).State, dedupe.StateClaimed)
			c.Retention = retention
			isClaimed(t, s.complete(t, c))
		}
	}},
	{log, "batch 0 loops, negative retention deletes all", func(t *testing.T, s *subject) {
		done, free := s.doneFor(t, "1", short), s.failed(t, s.key(t, "2")).Key
		s.h.Advance(t, past)
		for _, r := range []struct {
			staleAfter time.Duration
			limit      int
		}{{short, 0}, {short, -1}, {-time.Hour, 100}} {
			if n, err := s.log.Purge(t.Context(), s.scope, r.staleAfter, r.limit); n != 0 || err == nil || dedupe.IsOutage(err) {
				t.Fatalf("Purge with age %v and limit %d: %d purged, error %v; want a refusal", r.staleAfter, r.limit, n, err)
			}
		}
		equal(t, "state", s.inspect(t, done).State, dedupe.StateDone)
		equal(t, "state", s.inspect(t, free).State, dedupe.StateFree)
	}},
	{log, "unbounded purge", func(t *testing.T, s *subject) {
		for _, id := range []string{"1", "2", "3"} {
			s.doneFor(t, id, short)
		}
		s.h.Advance(t, past)
		equal(t, "purged", s.purge(t, short, 1), 1)
		equal(t, "purged", s.purge(t, short, 2), 2)
	}},
	{log, "purge at start before the redeliveries arrive", func(t *testing.T, s *subject) {
		g := s.done(t, s.key(t, "1"))
		s.h.Advance(t, past)
		equal(t, "purged", s.purge(t, time.Millisecond, 100), 0) // however old: ExpiresAt alone decides
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Done)
	}},
	{log, "reaper deletes a live lock", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		s.h.Advance(t, past) // not updated since, but the lease lasts
		equal(t, "purged", s.purge(t, time.Millisecond, 100), 0)
		isVerdict(t, s.claim(t, s.claimRequest(g.Key, newOwner())), dedupe.Busy)
		isClaimed(t, s.complete(t, completeRequest(g)))
	}},
}
