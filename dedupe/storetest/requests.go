package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

var requests = []behaviour{
	{every, "no requests, no replies", func(t *testing.T, s *subject) {
		ctx := t.Context()
		equal(t, "replies of Claim", len(s.Claim(ctx, nil)), 0)
		equal(t, "replies of Renew", len(s.Renew(ctx, nil)), 0)
		equal(t, "replies of Complete", len(s.Complete(ctx, nil)), 0)
		equal(t, "replies of Release", len(s.Release(ctx, nil)), 0)
		equal(t, "replies of Bury", len(s.Bury(ctx, nil)), 0)
		equal(t, "replies of Learn", len(s.Learn(ctx, nil, retention)), 0)
		recs, err := s.Inspect(ctx, nil)
		if len(recs) != 0 || err != nil {
			t.Fatalf("Inspect of nothing: %d records, error %v", len(recs), err)
		}
	}},
	{every, "reply i answers request i in a batch of several hundred", func(t *testing.T, s *subject) {
		var claims []dedupe.ClaimRequest
		for i := range 300 {
			claims = append(claims, s.claimRequest(s.key(t, fmt.Sprint("id ", i)), newOwner()))
		}
		var completes []dedupe.CompleteRequest
		for i, reply := range s.Claim(t.Context(), claims) {
			isClaimed(t, reply)
			equal(t, "owner", reply.Record.Owner, claims[i].Owner)
			equal(t, "key", reply.Record.Key, claims[i].Key)
			c := completeRequest(s.grip(claims[i].Key, claims[i].Owner))
			c.Result = []byte(claims[i].Key.ID())
			completes = append(completes, c)
		}
		for i, reply := range s.Complete(t.Context(), completes) {
			isClaimed(t, reply)
			equal(t, "result", string(reply.Record.Result), claims[i].Key.ID())
		}
		keys := []dedupe.Key{s.key(t, "unknown")}
		for _, c := range claims {
			keys = append(keys, c.Key, c.Key) // a key may be asked twice
		}
		recs, err := s.Inspect(t.Context(), keys)
		if err != nil || len(recs) != len(keys) {
			t.Fatalf("Inspect of %d keys: %d records, error %v", len(keys), len(recs), err)
		}
		equal(t, "state of an unknown key", recs[0].State, dedupe.StateAbsent)
		for i, rec := range recs {
			equal(t, "key", rec.Key, keys[i])
			if i > 0 {
				equal(t, "result", string(rec.Result), keys[i].ID())
			}
		}
	}},
	{every, "the same key twice in a call is decided in order", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		first, second := s.claimRequest(k, newOwner()), s.claimRequest(k, newOwner())
		replies := s.Claim(t.Context(), []dedupe.ClaimRequest{first, second, first})
		equal(t, "replies", len(replies), 3)
		isClaimed(t, replies[0])
		isVerdict(t, replies[1], dedupe.Busy)
		equal(t, "owner", replies[1].Record.Owner, first.Owner)
		isClaimed(t, replies[2]) // asked again
		equal(t, "fence", replies[2].Record.Fence, replies[0].Record.Fence)

		mine, other := completeRequest(s.grip(k, first.Owner)), completeRequest(s.grip(k, second.Owner))
		replies = s.Complete(t.Context(), []dedupe.CompleteRequest{other, mine, other, mine})
		equal(t, "replies", len(replies), 4)
		isStale(t, replies[0], dedupe.Busy)
		isClaimed(t, replies[1])
		isStale(t, replies[2], dedupe.Done)
		isClaimed(t, replies[3])
	}},
	{every, "the same key twice in a call to release or bury is decided in order", func(t *testing.T, s *subject) {
		released, buried := s.claimed(t, s.key(t, "1")), s.claimed(t, s.key(t, "2"))
		other := failedRequest(s.grip(released.Key, newOwner()))
		replies := s.Release(t.Context(), []dedupe.ReleaseRequest{other, failedRequest(released), failedRequest(released), other})
		equal(t, "replies", len(replies), 4)
		isStale(t, replies[0], dedupe.Busy)
		isClaimed(t, replies[1])
		isClaimed(t, replies[2])
		equal(t, "failures", replies[2].Record.Failures, 1)
		isStale(t, replies[3], 0)
		replies = s.Bury(t.Context(), []dedupe.BuryRequest{buryRequest(s.grip(buried.Key, newOwner())), buryRequest(buried), buryRequest(buried)})
		equal(t, "replies", len(replies), 3)
		isStale(t, replies[0], dedupe.Busy)
		isClaimed(t, replies[1])
		isClaimed(t, replies[2])
	}},
	{every, "a lease under a millisecond is refused and its neighbours are claimed", func(t *testing.T, s *subject) {
		good1, good2 := s.claimRequest(s.key(t, "1"), newOwner()), s.claimRequest(s.key(t, "2"), newOwner())
		for i, lease := range []time.Duration{0, -live, time.Millisecond - 1} {
			bad := s.claimRequest(s.key(t, fmt.Sprint("bad ", i)), newOwner())
			bad.Lease = lease
			replies := s.Claim(t.Context(), []dedupe.ClaimRequest{good1, bad, good2})
			equal(t, "replies", len(replies), 3)
			isClaimed(t, replies[0])
			isRefused(t, replies[1].Err)
			isClaimed(t, replies[2])
			equal(t, "state of the refused", s.inspect(t, bad.Key).State, dedupe.StateAbsent)
		}
	}},
	{every, "a renewal for less than a millisecond is refused, the claim keeps its lease, and its neighbours are renewed", func(t *testing.T, s *subject) {
		bad, good := s.claimed(t, s.key(t, "1")), s.expired(t, s.key(t, "2"))
		for _, lease := range []time.Duration{0, -live, time.Millisecond - 1} {
			replies := s.Renew(t.Context(), []dedupe.RenewRequest{{Grip: bad, Lease: lease}, renewRequest(good)})
			equal(t, "replies", len(replies), 2)
			isRefused(t, replies[0].Err)
			isClaimed(t, replies[1])
		}
		isVerdict(t, s.claim(t, s.claimRequest(bad.Key, newOwner())), dedupe.Busy)
		isVerdict(t, s.claim(t, s.claimRequest(good.Key, newOwner())), dedupe.Busy)
	}},
	{every, "the zero key and the empty owner are refused and their neighbours are answered", func(t *testing.T, s *subject) {
		good := s.claimRequest(s.key(t, "1"), newOwner())
		noOwner, noKey := s.claimRequest(s.key(t, "2"), ""), s.claimRequest(dedupe.Key{}, newOwner())
		replies := s.Claim(t.Context(), []dedupe.ClaimRequest{noOwner, noKey, good})
		equal(t, "replies", len(replies), 3)
		isRefused(t, replies[0].Err)
		isRefused(t, replies[1].Err)
		isClaimed(t, replies[2])
		equal(t, "state of the refused", s.inspect(t, noOwner.Key).State, dedupe.StateAbsent)
	}},
	{every, "a write without owner never matches the owner of a row", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		before := s.inspect(t, g.Key)
		nobody := s.grip(g.Key, "")
		for op, reply := range map[string]dedupe.Reply{
			"renew":    s.renew(t, renewRequest(nobody)),
			"complete": s.complete(t, completeRequest(nobody)),
			"release":  s.release(t, failedRequest(nobody)),
			"bury":     s.bury(t, buryRequest(nobody)),
		} {
			if reply.Err == nil || dedupe.IsOutage(reply.Err) {
				t.Errorf("%s without owner answered %v, want an error that asking again cannot mend", op, say(reply))
			}
		}
		sameRecord(t, "the record", s.inspect(t, g.Key), before)
	}},
	{every, "a stale request does not fail its neighbours", func(t *testing.T, s *subject) {
		stale := s.grip(s.key(t, "unknown"), newOwner())
		a, b, c := s.claimed(t, s.key(t, "a")), s.claimed(t, s.key(t, "b")), s.claimed(t, s.key(t, "c"))
		ctx := t.Context()
		for op, replies := range map[string][]dedupe.Reply{
			"renew":    s.Renew(ctx, []dedupe.RenewRequest{renewRequest(stale), renewRequest(a)}),
			"complete": s.Complete(ctx, []dedupe.CompleteRequest{completeRequest(stale), completeRequest(a)}),
			"release":  s.Release(ctx, []dedupe.ReleaseRequest{failedRequest(stale), failedRequest(b)}),
			"bury":     s.Bury(ctx, []dedupe.BuryRequest{buryRequest(stale), buryRequest(c)}),
		} {
			if len(replies) != 2 || !errors.Is(replies[0].Err, dedupe.ErrStale) || replies[1].Err != nil {
				t.Errorf("%s of a stale claim and a held one: %v", op, replies)
			}
		}
	}},
	{every, "a store keeps none of its arguments and shares none of its answers", func(t *testing.T, s *subject) {
		g := s.claimed(t, s.key(t, "1"))
		r := completeRequest(g)
		r.Result = []byte("result")
		reply := s.complete(t, r)
		copy(r.Result, "XXXXXX")
		copy(reply.Record.Result, "YYYYYY")
		copy(s.inspect(t, g.Key).Result, "ZZZZZZ")
		equal(t, "result", string(s.inspect(t, g.Key).Result), "result")
		reqs := []dedupe.ClaimRequest{s.claimRequest(s.key(t, "2"), newOwner())}
		want := reqs[0]
		s.Claim(t.Context(), reqs)
		equal(t, "the request after the call", reqs[0], want)
	}},
	{every, "a cancelled context is answered at once, for each request, as an outage; what is unavailable was not done", func(t *testing.T, s *subject) {
		held := s.claimed(t, s.key(t, "held"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		unknown := s.claimRequest(s.key(t, "new"), newOwner())
		before := s.inspectAll(t, []dedupe.Grip{held, {Key: unknown.Key}})
		sure := true
		for op, replies := range map[string][]dedupe.Reply{
			"claim":    s.Claim(ctx, []dedupe.ClaimRequest{unknown, unknown}),
			"renew":    s.Renew(ctx, []dedupe.RenewRequest{renewRequest(held), renewRequest(held)}),
			"complete": s.Complete(ctx, []dedupe.CompleteRequest{completeRequest(held), completeRequest(held)}),
			"release":  s.Release(ctx, []dedupe.ReleaseRequest{failedRequest(held), failedRequest(held)}),
			"bury":     s.Bury(ctx, []dedupe.BuryRequest{buryRequest(held), buryRequest(held)}),
		} {
			equal(t, "replies of "+op, len(replies), 2)
			for _, reply := range replies {
				if !dedupe.IsOutage(reply.Err) {
					t.Errorf("%s with a cancelled context: %v, want ErrUnavailable or ErrOutcomeUnknown", op, say(reply))
				}
				sure = sure && errors.Is(reply.Err, dedupe.ErrUnavailable)
			}
		}
		if _, err := s.Inspect(ctx, []dedupe.Key{held.Key}); err == nil {
			t.Error("Inspect with a cancelled context: no error")
		}
		if sure {
			after := s.inspectAll(t, []dedupe.Grip{held, {Key: unknown.Key}})
			for i := range after {
				sameRecord(t, "the record", after[i], before[i])
			}
		}
	}},
	{every, "errors of requests name no id, which may hold personal data", func(t *testing.T, s *subject) {
		const secret = "alice@example.org"
		g := s.grip(s.key(t, secret), newOwner())
		r := s.claimRequest(g.Key, newOwner())
		r.Lease = 0
		for _, err := range []error{s.complete(t, completeRequest(g)).Err, s.claim(t, r).Err} {
			if err == nil || containsFold(err.Error(), secret) {
				t.Errorf("error %v, want one that names the key by its hash", err)
			}
		}
	}},
}
