package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idemq/idemq/dedupe"
)

// races lets many callers claim and settle a few keys at the same time. Some crash while they hold a claim, and come late. The order in
// which a store decides is not known; what must be true whatever it was is checked.
type races struct {
	*subject
	keys []*raced
}

// raced is a key, and what its callers were told.
type raced struct {
	key  dedupe.Key
	live atomic.Int32 // owners that hold it now, with a live lease

	mu       sync.Mutex
	fences   map[int64]bool
	failures map[int]int // generation -> failures that were counted
	deaths   map[int]int // generation -> takeovers
	doneBy   []dedupe.Owner
	crashed  []dedupe.Grip
}

func randomRaces(t *testing.T, s *subject) {
	r := &races{subject: s}
	for i := range 4 {
		r.keys = append(r.keys, &raced{key: s.key(t, fmt.Sprint(i)), fences: map[int64]bool{}, failures: map[int]int{}, deaths: map[int]int{}})
	}
	for range 6 {
		together(8, func(int) (none struct{}) {
			seen := make([]dedupe.Record, len(r.keys))
			for range 8 {
				r.turn(t, r.keys[rand.IntN(len(r.keys))])
				r.watch(t, seen)
			}
			return none
		})
		s.h.Advance(t, past) // the leases of those that crashed are over
	}
	for _, k := range r.keys {
		rec := s.inspect(t, k.key)
		equal(t, "failures", rec.Failures, k.failures[rec.Generation])
		equal(t, "deaths", rec.Deaths, k.deaths[rec.Generation])
		if len(k.doneBy) > 1 {
			t.Errorf("done by %v, want one owner", k.doneBy)
		}
		if len(k.doneBy) == 1 {
			equal(t, "state", rec.State, dedupe.StateDone)
			equal(t, "owner", rec.Owner, k.doneBy[0])
		}
	}
}

// turn is one delivery, or one that crashed and comes late.
func (r *races) turn(t *testing.T, k *raced) {
	if late, ok := k.late(); ok {
		r.settle(t, k, late, false)
		return
	}
	req := r.claimRequest(k.key, newOwner())
	req.Redriven = rand.IntN(3) == 0
	crash := rand.IntN(10) == 0
	if crash {
		req.Lease = short
	}
	reply := r.claim1(t, req)
	if reply.Err != nil {
		t.Errorf("claim answered %v", say(reply))
	}
	if reply.Verdict != dedupe.Claimed {
		return
	}
	g := dedupe.Grip{Key: k.key, Owner: req.Owner, Incarnation: reply.Record.Incarnation}
	k.claimed(t, reply, g, crash)
	if crash {
		return
	}
	if n := k.live.Add(1); n != 1 {
		t.Errorf("%d owners hold a key at the same time", n)
	}
	k.live.Add(-1) // before it is settled, for the next may claim before our call returns
	r.settle(t, k, g, true)
}

// late is, now and then, one that crashed.
func (k *raced) late() (g dedupe.Grip, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.crashed)
	if n == 0 || rand.IntN(3) > 0 {
		return g, false
	}
	g, k.crashed = k.crashed[n-1], k.crashed[:n-1]
	return g, true
}

func (k *raced) claimed(t *testing.T, reply dedupe.Reply, g dedupe.Grip, crash bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fences[reply.Record.Fence] {
		t.Errorf("two claims have fence %d", reply.Record.Fence)
	}
	k.fences[reply.Record.Fence] = true
	if reply.Taken {
		k.deaths[reply.Record.Generation]++
	}
	if crash {
		k.crashed = append(k.crashed, g)
	}
}

// settle ends a claim once. Whoever holds a live one succeeds; one that crashed may.
func (r *races) settle(t *testing.T, k *raced, g dedupe.Grip, live bool) {
	var reply dedupe.Reply
	dice := rand.IntN(100)
	switch {
	case dice == 0:
		reply = only1(r.Complete(t.Context(), []dedupe.CompleteRequest{completeRequest(g)}))
	case dice < 6:
		reply = only1(r.Bury(t.Context(), []dedupe.BuryRequest{buryRequest(g)}))
	case dice < 80:
		reply = only1(r.Release(t.Context(), []dedupe.ReleaseRequest{failedRequest(g)}))
	default:
		reply = only1(r.Release(t.Context(), []dedupe.ReleaseRequest{handBackRequest(g)}))
	}
	if reply.Err != nil {
		if live {
			t.Errorf("settling a live claim answered %v", say(reply))
		}
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case dice == 0:
		k.doneBy = append(k.doneBy, g.Owner)
	case dice >= 6 && dice < 80:
		k.failures[reply.Record.Generation]++
	}
}

// watch looks at the keys again: done stays done, and generation, counts and fence never go back.
func (r *races) watch(t *testing.T, seen []dedupe.Record) {
	keys := make([]dedupe.Key, len(r.keys))
	for i, k := range r.keys {
		keys[i] = k.key
	}
	recs, err := r.Inspect(t.Context(), keys)
	if err != nil || len(recs) != len(keys) {
		t.Errorf("Inspect of %d keys: %d records, error %v", len(keys), len(recs), err)
		return
	}
	for i, rec := range recs {
		if wentBack(seen[i], rec) {
			t.Errorf("a key went from\n%+v to\n%+v", seen[i], rec)
		}
		seen[i] = rec
	}
}

func wentBack(was, is dedupe.Record) bool {
	switch {
	case was.State == dedupe.StateDone:
		return is.State != dedupe.StateDone || is.Owner != was.Owner
	case was.State != dedupe.StateAbsent && is.State == dedupe.StateAbsent, is.Generation < was.Generation, is.Fence < was.Fence:
		return true
	case was.State == dedupe.StateDead && is.State != dedupe.StateDead:
		return is.Generation == was.Generation
	case is.Generation == was.Generation:
		return is.Failures < was.Failures || is.Deaths < was.Deaths || is.AloneDeaths < was.AloneDeaths
	}
	return false
}
