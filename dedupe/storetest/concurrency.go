package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idemq/idemq/dedupe"
)

const callers = 32

var concurrency = []behaviour{
	{every, "of many that claim a new key at the same time exactly one wins", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		oneWins(t, func() dedupe.Reply { return s.claim1(t, s.claimRequest(k, newOwner())) }, dedupe.Busy)
		equal(t, "failures, deaths, deaths alone, generation", counts(s.inspect(t, k)), [4]int{})
	}},
	{every, "of many that take over an expired claim exactly one wins, and one death is counted", func(t *testing.T, s *subject) {
		g := s.expired(t, s.key(t, "1"))
		oneWins(t, func() dedupe.Reply { return s.claim1(t, s.claimRequest(g.Key, newOwner())) }, dedupe.Busy)
		equal(t, "failures, deaths, deaths alone, generation", counts(s.inspect(t, g.Key)), [4]int{0, 1, 0, 0})
	}},
	{every, "of many that claim a free key exactly one wins", func(t *testing.T, s *subject) {
		g := s.failed(t, s.key(t, "1"))
		oneWins(t, func() dedupe.Reply { return s.claim1(t, s.claimRequest(g.Key, newOwner())) }, dedupe.Busy)
	}},
	{every, "of many that take up a dead key exactly one wins, in the next generation", func(t *testing.T, s *subject) {
		g := s.dead(t, s.key(t, "1"))
		oneWins(t, func() dedupe.Reply {
			r := s.claimRequest(g.Key, newOwner())
			r.Redriven = true
			return s.claim1(t, r)
		}, dedupe.Busy)
		equal(t, "generation", s.inspect(t, g.Key).Generation, 1)
	}},
	{every, "many that ask with the same owner at the same time are all Claimed with one fence", func(t *testing.T, s *subject) {
		r := s.claimRequest(s.key(t, "1"), newOwner())
		fences := map[int64]bool{}
		for _, reply := range together(callers, func(int) dedupe.Reply { return s.claim1(t, r) }) {
			isClaimed(t, reply)
			fences[reply.Record.Fence] = true
		}
		equal(t, "fences", len(fences), 1)
	}},
	{every, "a takeover and a late completion: one of them happens", func(t *testing.T, s *subject) {
		var gs []dedupe.Grip
		for i := range 20 {
			r := s.claimRequest(s.key(t, fmt.Sprint(i)), newOwner())
			r.Lease = short
			gs = append(gs, s.claimedWith(t, r))
		}
		s.h.Advance(t, past)
		for _, g := range gs {
			replies := together(2, func(i int) dedupe.Reply {
				if i == 0 {
					return only1(s.Complete(t.Context(), []dedupe.CompleteRequest{completeRequest(g)}))
				}
				return s.claim1(t, s.claimRequest(g.Key, newOwner()))
			})
			if completed, taken := replies[0], replies[1]; completed.Err == nil {
				isVerdict(t, taken, dedupe.Done)
			} else {
				isStale(t, completed, dedupe.Busy)
				isClaimed(t, taken)
			}
		}
	}},
	{log, "of many unclaimed completions of a key exactly one happens", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		oneWins(t, func() dedupe.Reply {
			r := completeRequest(s.grip(k, newOwner()))
			r.Unclaimed = true
			return only1(s.Complete(t.Context(), []dedupe.CompleteRequest{r}))
		}, dedupe.Done)
	}},
	{log, "failures of many unclaimed releases at the same time are all counted", func(t *testing.T, s *subject) {
		k := s.key(t, "1")
		for _, reply := range together(callers, func(int) dedupe.Reply {
			r := failedRequest(s.grip(k, newOwner()))
			r.Unclaimed = true
			return only1(s.Release(t.Context(), []dedupe.ReleaseRequest{r}))
		}) {
			isClaimed(t, reply)
		}
		equal(t, "failures", s.inspect(t, k).Failures, callers)
	}},
	{every, "batches of the same keys in other orders fail nobody, and each key has one winner", batchesInOtherOrders},
	{log, "a renewal and a purge: a claim that was renewed is there", func(t *testing.T, s *subject) {
		var gs []dedupe.Grip
		for i := range 20 {
			r := s.claimRequest(s.key(t, fmt.Sprint(i)), newOwner())
			r.Lease = short
			gs = append(gs, s.claimedWith(t, r))
		}
		s.h.Advance(t, past)
		replies := together(len(gs)+4, func(i int) (reply dedupe.Reply) {
			if i < len(gs) {
				return only1(s.Renew(t.Context(), []dedupe.RenewRequest{renewRequest(gs[i])}))
			}
			if _, err := s.log.Purge(t.Context(), s.scope, short, 3); err != nil {
				t.Errorf("Purge: %v", err)
			}
			return reply
		})
		for i, rec := range s.inspectAll(t, gs) {
			if renewed := replies[i].Err == nil; renewed != (rec.State == dedupe.StateClaimed) {
				t.Errorf("the renewal answered %v, and the key is %v", say(replies[i]), rec.State)
			}
		}
	}},
	{every, "a random concurrent history: one live owner at a time, done is done, states go up, and no count is lost", randomRaces},
}

func batchesInOtherOrders(t *testing.T, s *subject) {
	var keys []dedupe.Key
	for i := range 20 {
		keys = append(keys, s.key(t, fmt.Sprint(i)))
	}
	won := make([]atomic.Int32, len(keys))
	together(8, func(int) (none struct{}) {
		order := rand.Perm(len(keys))
		owner := newOwner()
		reqs := make([]dedupe.ClaimRequest, len(keys))
		for i, n := range order {
			reqs[i] = s.claimRequest(keys[n], owner)
		}
		completes, at := []dedupe.CompleteRequest(nil), []int(nil)
		for i, reply := range s.Claim(t.Context(), reqs) {
			switch {
			case reply.Err != nil || reply.Verdict != dedupe.Claimed && reply.Verdict != dedupe.Busy && reply.Verdict != dedupe.Done:
				t.Errorf("claim in a batch answered %v", say(reply))
			case reply.Verdict == dedupe.Claimed:
				completes, at = append(completes, completeRequest(s.grip(reqs[i].Key, owner))), append(at, order[i])
			}
		}
		for i, reply := range s.Complete(t.Context(), completes) {
			if reply.Err != nil {
				t.Errorf("complete in a batch answered %v", say(reply))
			}
			won[at[i]].Add(1)
		}
		return none
	})
	for i := range won {
		equal(t, "winners of "+keys[i].ID(), won[i].Load(), 1)
	}
}

// oneWins makes many calls at the same time, of which exactly one is Claimed; the others are answered with loser, and an unclaimed
// write with ErrStale.
func oneWins(t *testing.T, call func() dedupe.Reply, loser dedupe.Verdict) {
	t.Helper()
	won := 0
	for _, reply := range together(callers, func(int) dedupe.Reply { return call() }) {
		switch reply.Verdict {
		case dedupe.Claimed:
			won++
		case loser:
		default:
			t.Errorf("answered %v, want %v or %v", say(reply), dedupe.Claimed, loser)
		}
	}
	equal(t, "winners", won, 1)
}

// together makes n calls that start at the same moment, and returns their answers.
func together[T any](n int, call func(i int) T) []T {
	answers := make([]T, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			answers[i] = call(i)
		})
	}
	close(start)
	wg.Wait()
	return answers
}

// claim1 and only1 do not end the test, so that they may be called from any goroutine.
func (s *subject) claim1(t *testing.T, r dedupe.ClaimRequest) dedupe.Reply {
	return only1(s.Claim(t.Context(), []dedupe.ClaimRequest{r}))
}

func only1(replies []dedupe.Reply) dedupe.Reply {
	if len(replies) != 1 {
		return dedupe.Reply{Err: fmt.Errorf("1 request, %d replies", len(replies))}
	}
	return replies[0]
}
