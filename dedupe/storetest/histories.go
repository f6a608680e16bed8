package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// seedVariable makes random histories the same again: a failure prints its seed.
const seedVariable = "STORETEST_SEED"

var histories = []behaviour{
	{every, "a random history is answered as by a plain map", func(t *testing.T, s *subject) {
		// Three at least, and more from a store that is quick.
		for i, begin := 0, time.Now(); i < 3 || i < 30 && time.Since(begin) < time.Second/2; i++ {
			newHistory(t, s).play(t, 150)
		}
	}},
}

// history plays random calls to a store and to memstore, and compares every answer. Claims either outlast it or end before the next
// call, so that two clocks agree.
type history struct {
	real, model *subject
	rand        *rand.Rand
	keys        []dedupe.Key
	owners      [][]dedupe.Owner // for each key, those that may still have something to say
	told        []string
	n           int
	ending      bool // the lease asked for is short: whether it has ended when the store answers is not expected
}

func newHistory(t *testing.T, s *subject) *history {
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
	}
	h := &history{real: s, rand: rand.New(rand.NewPCG(seed, 0))}
	h.note("%s=%d", seedVariable, seed)
	clock := &handClock{now: time.Now()}
	h.model = &subject{h: clock, scope: s.scope, incarnation: s.incarnation, Store: memstore.NewWithClock(clock.Now)}
	if s.log != nil {
		log := memstore.NewLogWithClock(clock.Now)
		h.model.Store, h.model.log = log, log
		h.model.incarnation = h.model.incarnationNow(t)
	}
	for i := range 4 {
		h.keys = append(h.keys, s.key(t, fmt.Sprintf("%x %d", seed, i)))
	}
	h.owners = make([][]dedupe.Owner, len(h.keys))
	return h
}

// handClock is the model's: it moves when the real store's does.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Open(*testing.T) dedupe.Store { return nil }

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) Advance(_ *testing.T, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (h *history) note(format string, args ...any) {
	h.told = append(h.told, fmt.Sprintf(format, args...))
}

func (h *history) play(t *testing.T, calls int) {
	for range calls {
		switch dice := h.rand.IntN(100); {
		case dice < 34:
			h.claim(t, live)
		case dice < 38:
			h.claim(t, short)
		case dice < 80:
			h.settle(t)
		case dice < 83:
			h.reopen(t)
		case dice < 88:
			h.forget(t)
		case dice < 97 && h.real.log == nil:
			h.learn(t)
		case dice < 97:
			h.unclaimed(t)
		case h.real.log != nil:
			h.restored(t)
		}
		h.compareRows(t)
		if t.Failed() {
			t.Fatalf("history:\n%s", strings.Join(h.told, "\n"))
		}
	}
}

// pick is one to four keys, perhaps the same twice.
func (h *history) pick() []int {
	picked := make([]int, 1+h.rand.IntN(4))
	for i := range picked {
		picked[i] = h.rand.IntN(len(h.keys))
	}
	return picked
}

func (h *history) owner() dedupe.Owner {
	h.n++
	return dedupe.Owner(fmt.Sprintf("owner-%d", h.n))
}

// both makes the same call to the store and to the model, and compares the replies.
func both[R any](t *testing.T, h *history, what string, picked []int, owners map[int]dedupe.Owner, request func(s *subject, i int) R, call func(s *subject, rs []R) []dedupe.Reply) {
	reals, models := make([]R, len(picked)), make([]R, len(picked))
	for i, n := range picked {
		reals[i], models[i] = request(h.real, n), request(h.model, n)
	}
	got, want := call(h.real, reals), call(h.model, models)
	if len(got) != len(want) {
		t.Fatalf("%s: %d requests, %d replies", what, len(want), len(got))
	}
	for i := range want {
		h.note("%s of key %d by %s: %s", what, picked[i], owners[picked[i]], say(want[i]))
		g, w := h.comparable(h.real, got[i].Record), h.comparable(h.model, want[i].Record)
		if got[i].Verdict != want[i].Verdict || (got[i].Err == nil) != (want[i].Err == nil) || got[i].Taken != want[i].Taken || g != w {
			t.Errorf("%s of key %d is answered %s, taken %v, record\n%s; want %s, taken %v, record\n%s",
				what, picked[i], say(got[i]), got[i].Taken, g, say(want[i]), want[i].Taken, w)
		}
	}
}

func (h *history) claim(t *testing.T, lease time.Duration) {
	picked := h.pick()
	if lease == short {
		picked = picked[:1]
	}
	again, redriven, alone := h.rand.IntN(4) == 0, h.rand.IntN(3) == 0, h.rand.IntN(3) == 0
	owners := make(map[int]dedupe.Owner)
	for _, n := range picked {
		rec := h.model.inspect(t, h.keys[n])
		if again && rec.State == dedupe.StateClaimed && rec.Incarnation == h.model.incarnation {
			owners[n] = rec.Owner
			continue
		}
		owners[n] = h.owner()
		h.owners[n] = append(h.owners[n], owners[n])
	}
	h.ending = lease == short
	both(t, h, fmt.Sprintf("claim (lease %v, redriven %v, alone %v)", lease, redriven, alone), picked, owners, func(s *subject, n int) dedupe.ClaimRequest {
		r := s.claimRequest(h.keys[n], owners[n])
		r.Lease, r.Redriven, r.Alone = lease, redriven, alone
		return r
	}, func(s *subject, rs []dedupe.ClaimRequest) []dedupe.Reply { return s.Claim(t.Context(), rs) })
	h.ending = false
	if lease == short {
		h.note("time passes")
		h.real.h.Advance(t, past)
		h.model.h.Advance(t, past)
	}
}

// settle lets the holder, or one that held the key before, renew or settle.
func (h *history) settle(t *testing.T) {
	picked := h.pick()
	owners := make(map[int]dedupe.Owner)
	for _, n := range picked {
		owners[n] = "nobody"
		if rec := h.model.inspect(t, h.keys[n]); rec.State == dedupe.StateClaimed && h.rand.IntN(3) > 0 {
			owners[n] = rec.Owner
		} else if len(h.owners[n]) > 0 {
			owners[n] = h.owners[n][h.rand.IntN(len(h.owners[n]))]
		}
	}
	grip := func(s *subject, n int) dedupe.Grip { return s.grip(h.keys[n], owners[n]) }
	switch dice := h.rand.IntN(20); {
	case dice < 3:
		both(t, h, "renew", picked, owners, func(s *subject, n int) dedupe.RenewRequest { return renewRequest(grip(s, n)) },
			func(s *subject, rs []dedupe.RenewRequest) []dedupe.Reply { return s.Renew(t.Context(), rs) })
	case dice < 4:
		both(t, h, "complete", picked, owners, func(s *subject, n int) dedupe.CompleteRequest {
			r := completeRequest(grip(s, n))
			r.Result = []byte(owners[n])
			return r
		}, func(s *subject, rs []dedupe.CompleteRequest) []dedupe.Reply { return s.Complete(t.Context(), rs) })
	case dice < 18:
		both(t, h, fmt.Sprintf("release (failed %v)", dice < 14), picked, owners, func(s *subject, n int) dedupe.ReleaseRequest {
			r := failedRequest(grip(s, n))
			r.Failed = dice < 14
			return r
		}, func(s *subject, rs []dedupe.ReleaseRequest) []dedupe.Reply { return s.Release(t.Context(), rs) })
	default:
		both(t, h, "bury", picked, owners, func(s *subject, n int) dedupe.BuryRequest { return buryRequest(grip(s, n)) },
			func(s *subject, rs []dedupe.BuryRequest) []dedupe.Reply { return s.Bury(t.Context(), rs) })
	}
}

// unclaimed writes by a new owner.
func (h *history) unclaimed(t *testing.T) {
	picked := h.pick()
	owners := make(map[int]dedupe.Owner)
	for _, n := range picked {
		owners[n] = h.owner()
		h.owners[n] = append(h.owners[n], owners[n])
	}
	grip := func(s *subject, n int) dedupe.Grip { return s.grip(h.keys[n], owners[n]) }
	redriven := h.rand.IntN(2) == 0
	switch h.rand.IntN(4) {
	case 0:
		both(t, h, fmt.Sprintf("unclaimed complete (redriven %v)", redriven), picked, owners, func(s *subject, n int) dedupe.CompleteRequest {
			r := completeRequest(grip(s, n))
			r.Unclaimed, r.Redriven = true, redriven
			return r
		}, func(s *subject, rs []dedupe.CompleteRequest) []dedupe.Reply { return s.Complete(t.Context(), rs) })
	case 1, 2:
		both(t, h, fmt.Sprintf("unclaimed release (redriven %v)", redriven), picked, owners, func(s *subject, n int) dedupe.ReleaseRequest {
			r := failedRequest(grip(s, n))
			r.Unclaimed, r.Redriven = true, redriven
			return r
		}, func(s *subject, rs []dedupe.ReleaseRequest) []dedupe.Reply { return s.Release(t.Context(), rs) })
	default:
		both(t, h, "unclaimed bury", picked, owners, func(s *subject, n int) dedupe.BuryRequest {
			r := buryRequest(grip(s, n))
			r.Unclaimed = true
			return r
		}, func(s *subject, rs []dedupe.BuryRequest) []dedupe.Reply { return s.Bury(t.Context(), rs) })
	}
}

// preferring is a key in that state if there is one: done and dead keys would stay so, and nothing would happen any more.
func (h *history) preferring(t *testing.T, state dedupe.State) int {
	for n, k := range h.keys {
		if h.model.inspect(t, k).State == state {
			return n
		}
	}
	return h.rand.IntN(len(h.keys))
}

func (h *history) reopen(t *testing.T) {
	n := h.preferring(t, dedupe.StateDead)
	got, gotErr := h.real.Reopen(t.Context(), h.keys[n], audit)
	want, wantErr := h.model.Reopen(t.Context(), h.keys[n], audit)
	h.note("reopen key %d: %v", n, wantErr)
	if g, w := h.comparable(h.real, got), h.comparable(h.model, want); g != w || (gotErr == nil) != (wantErr == nil) {
		t.Errorf("reopen of key %d: %v, record\n%s; want %v,\n%s", n, gotErr, g, wantErr, w)
	}
	if wantErr == nil {
		h.owners[n] = nil // what the one that buried it may say now is nobody's promise
	}
}

func (h *history) forget(t *testing.T) {
	n := h.preferring(t, dedupe.StateDone)
	got, want := h.real.Forget(t.Context(), h.keys[n], audit), h.model.Forget(t.Context(), h.keys[n], audit)
	h.note("forget key %d: %v", n, want)
	if (got == nil) != (want == nil) {
		t.Errorf("forget of key %d: %v, want %v", n, got, want)
	}
}

func (h *history) learn(t *testing.T) {
	n := h.rand.IntN(len(h.keys))
	rec := h.real.record(t, "learned", dedupe.State(1+h.rand.IntN(4)))
	rec.Key, rec.Owner = h.keys[n], h.owner()
	rec.Failures, rec.Deaths, rec.AloneDeaths, rec.Generation = h.rand.IntN(3), h.rand.IntN(3), 0, h.rand.IntN(3)
	if rec.State == dedupe.StateDone {
		rec.Generation = 1000 // whether done of a lower generation counts is not expected
	}
	h.note("learn key %d: %v by %s, counts %v", n, rec.State, rec.Owner, counts(rec))
	h.real.learn(t, rec)
	h.model.learn(t, rec)
	h.owners[n] = nil // a learned row has no history with its owner
}

// restored: what the old incarnation's owners may still be answered for what they settled is not expected; their claims are void.
func (h *history) restored(t *testing.T) {
	h.note("restored")
	h.real.restored(t)
	h.model.restored(t)
	clear(h.owners)
}

func (h *history) compareRows(t *testing.T) {
	for n, k := range h.keys {
		got, want := h.real.inspect(t, k), h.model.inspect(t, k)
		if g, w := h.comparable(h.real, got), h.comparable(h.model, want); g != w {
			t.Errorf("key %d is\n%s, want\n%s", n, g, w)
		}
	}
}

// comparable is what two stores with clocks of their own must agree about.
func (h *history) comparable(s *subject, r dedupe.Record) string {
	text := fmt.Sprintf("%v, counts %v", r.State, counts(r))
	switch r.State {
	case dedupe.StateAbsent:
		return text
	case dedupe.StateFree: // nothing hangs on its incarnation
		return text + fmt.Sprintf(", owner %s", r.Owner)
	case dedupe.StateClaimed:
		text += fmt.Sprintf(", alone %v", r.Alone)
		if !h.ending {
			text += fmt.Sprintf(", expired %v", r.LeaseLeft <= 0)
		}
	case dedupe.StateDead:
		text += fmt.Sprintf(", reason %q", r.Reason)
	case dedupe.StateDone:
		text += fmt.Sprintf(", result %q, fingerprint %x", r.Result, r.Fingerprint)
	}
	return text + fmt.Sprintf(", owner %s, of the present incarnation %v", r.Owner, r.Incarnation == s.incarnation)
}
