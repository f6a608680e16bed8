package dedupe

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// maxUnsettled bounds what a process remembers of deliveries that ended without an answer.
const maxUnsettled = 100_000

// unsettled remembers, for this process, what helps the next delivery of the same key. All of it may be lost: each entry spares a
// wait, none is needed for a promise.
type unsettled struct {
	lease time.Duration

	mu   sync.Mutex
	keys map[Key]memory
}

type memory struct {
	at    time.Time // monotonic
	owner Owner     // of a claim whose answer was given up, and with which neither release nor Dead was sent
	kept  bool      // owner did hold the claim, and its release surely did not arrive
	busy  time.Time // when Redis first said Busy in a row
	claim *Claim    // its handler returned success, and its completion was given up
}

// claimOf is the claim of k whose completion was given up, if there is one.
func (u *unsettled) claimOf(k Key) *Claim {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.keys[k].claim
}

// takeOwner hands out the owner of a claim of k whose answer was given up; empty if there is none or its lease is over, unless it was kept:
// taken over by another owner, its claim would count as a death. It is handed out once: to a store, two deliveries that ask with one owner both hold
// the claim.
func (u *unsettled) takeOwner(k Key) (owner Owner, kept bool) {
	u.change(k, func(m *memory) {
		age := time.Since(m.at)
		if age <= u.lease || m.kept {
			owner, kept = m.owner, m.kept
		}
		m.owner, m.kept = "", false
		if age > 2*u.lease {
			m.busy = time.Time{}
		}
	})
	return owner, kept
}

// change applies f to what is known of k; a zero result is forgotten.
func (u *unsettled) change(k Key, f func(*memory)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	m := u.keys[k]
	f(&m)
	if m.owner == "" && m.busy.IsZero() && m.claim == nil {
		delete(u.keys, k)
		return
	}
	if u.keys == nil {
		u.keys = map[Key]memory{}
	}
	if _, ok := u.keys[k]; !ok && len(u.keys) >= maxUnsettled {
		u.makeRoom()
	}
	m.at = time.Now()
	u.keys[k] = m
}

// makeRoom drops what is over, then anything but claims to complete until a tenth is free, so that a full memory is not looked
// through for each message, and then the oldest of those. Map order is random, which is fair enough.
func (u *unsettled) makeRoom() {
	for k, m := range u.keys {
		if m.claim == nil && time.Since(m.at) > u.lease {
			delete(u.keys, k)
		}
	}
	const room = maxUnsettled - maxUnsettled/10
	for k, m := range u.keys {
		if len(u.keys) <= room {
			return
		}
		if m.claim == nil {
			delete(u.keys, k)
		}
	}
	byAge := slices.SortedFunc(maps.Keys(u.keys), func(a, b Key) int { return u.keys[a].at.Compare(u.keys[b].at) })
	for _, k := range byAge[:max(len(byAge)-room, 0)] {
		delete(u.keys, k)
	}
}

// firstBusy returns since when Redis has been saying Busy, starting now if it just began.
func (u *unsettled) firstBusy(k Key) (since time.Time) {
	u.change(k, func(m *memory) {
		if m.busy.IsZero() {
			m.busy = time.Now()
		}
		since = m.busy
	})
	return since
}

func (u *unsettled) notBusy(k Key) {
	u.mu.Lock()
	_, ok := u.keys[k]
	u.mu.Unlock()
	if ok {
		u.change(k, func(m *memory) { m.busy = time.Time{} })
	}
}
