package storetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

const (
	// live is a lease that does not end during a test.
	live = 10 * time.Minute
	// short is a lease that a test waits for. Nothing here relies on it being live still.
	short = 20 * time.Millisecond
	// past is how long to wait until short has ended.
	past = 30 * time.Millisecond
	// retention is longer than a test, and longer than live.
	retention = time.Hour
)

// subject is a store under test, and the scope that one subtest has in it.
type subject struct {
	dedupe.Store
	h           Harness
	log         dedupe.Log    // nil if the store is none
	memory      dedupe.Memory // nil if the store is none
	scope       string
	incarnation dedupe.Incarnation
}

func open(t *testing.T, h Harness) *subject {
	t.Helper()
	s := &subject{Store: h.Open(t), h: h, scope: "t." + rand.Text(), incarnation: "incarnation-1"}
	s.log, _ = s.Store.(dedupe.Log)
	s.memory, _ = s.Store.(dedupe.Memory)
	if s.log != nil {
		inc, err := s.log.Incarnation(t.Context())
		if err != nil {
			t.Fatalf("Incarnation: %v", err)
		}
		s.incarnation = inc
	}
	return s
}

func (s *subject) is(k kind) bool {
	switch k {
	case told:
		return s.log == nil
	case log:
		return s.log != nil
	case memory:
		return s.memory != nil
	default:
		return true
	}
}

// key makes a key of this subtest's scope.
func (s *subject) key(t *testing.T, id string) dedupe.Key { return s.keyIn(t, "ns", id) }

func (s *subject) keyIn(t *testing.T, namespace, id string) dedupe.Key {
	t.Helper()
	k, err := dedupe.NewKey(s.scope, namespace, id)
	if err != nil {
		t.Fatalf("NewKey: %v", err)
	}
	return k
}

func newOwner() dedupe.Owner { return dedupe.Owner(rand.Text()) }

func fingerprint(what string) dedupe.Fingerprint { return dedupe.FingerprintOf([]byte(what)) }

// Requests as the guard makes them; tests change what they are about.

func (s *subject) claimRequest(k dedupe.Key, o dedupe.Owner) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{Key: k, Owner: o, Fingerprint: fingerprint("body"), Lease: live, Retention: retention, Incarnation: s.incarnation}
}

func (s *subject) grip(k dedupe.Key, o dedupe.Owner) dedupe.Grip {
	return dedupe.Grip{Key: k, Owner: o, Incarnation: s.incarnation}
}

func completeRequest(g dedupe.Grip) dedupe.CompleteRequest {
	return dedupe.CompleteRequest{Grip: g, Fingerprint: fingerprint("body"), Result: []byte("result"), Retention: retention}
}

func failedRequest(g dedupe.Grip) dedupe.ReleaseRequest {
	return dedupe.ReleaseRequest{Grip: g, Failed: true, Fingerprint: fingerprint("body"), Retention: retention}
}

func handBackRequest(g dedupe.Grip) dedupe.ReleaseRequest {
	r := failedRequest(g)
	r.Failed = false
	return r
}

func buryRequest(g dedupe.Grip) dedupe.BuryRequest {
	return dedupe.BuryRequest{Grip: g, Reason: "handler failed 3 times", Fingerprint: fingerprint("body"), Retention: retention}
}

func renewRequest(g dedupe.Grip) dedupe.RenewRequest {
	return dedupe.RenewRequest{Grip: g, Lease: live}
}

// Calls with one request.

func (s *subject) claim(t *testing.T, r dedupe.ClaimRequest) dedupe.Reply {
	t.Helper()
	return only(t, s.Claim(t.Context(), []dedupe.ClaimRequest{r}))
}

func (s *subject) renew(t *testing.T, r dedupe.RenewRequest) dedupe.Reply {
	t.Helper()
	return only(t, s.Renew(t.Context(), []dedupe.RenewRequest{r}))
}

func (s *subject) complete(t *testing.T, r dedupe.CompleteRequest) dedupe.Reply {
	t.Helper()
	return only(t, s.Complete(t.Context(), []dedupe.CompleteRequest{r}))
}

func (s *subject) release(t *testing.T, r dedupe.ReleaseRequest) dedupe.Reply {
	t.Helper()
	return only(t, s.Release(t.Context(), []dedupe.ReleaseRequest{r}))
}

func (s *subject) bury(t *testing.T, r dedupe.BuryRequest) dedupe.Reply {
	t.Helper()
	return only(t, s.Bury(t.Context(), []dedupe.BuryRequest{r}))
}

func (s *subject) learn(t *testing.T, rec dedupe.Record) {
	t.Helper()
	if err := only(t, s.Learn(t.Context(), []dedupe.Record{rec}, retention)); err != nil {
		t.Fatalf("Learn: %v", err)
	}
}

func (s *subject) inspect(t *testing.T, k dedupe.Key) dedupe.Record {
	t.Helper()
	recs, err := s.Inspect(t.Context(), []dedupe.Key{k})
	if err != nil {
		t.Fatalf("Inspect: %v", err)
	}
	rec := only(t, recs)
	if rec.Key != k {
		t.Fatalf("Inspect(%v) answers about %v", k, rec.Key)
	}
	return rec
}

// only is the answer to the only request.
func only[T any](t *testing.T, answers []T) T {
	t.Helper()
	if len(answers) != 1 {
		t.Fatalf("1 request, %d answers", len(answers))
	}
	return answers[0]
}

// What a test starts from. Each fails the test if the store does not get there.

// claimed makes k claimed by a new owner, with a live lease.
func (s *subject) claimed(t *testing.T, k dedupe.Key) dedupe.Grip {
	t.Helper()
	return s.claimedWith(t, s.claimRequest(k, newOwner()))
}

func (s *subject) claimedWith(t *testing.T, r dedupe.ClaimRequest) dedupe.Grip {
	t.Helper()
	reply := s.claim(t, r)
	isClaimed(t, reply)
	return dedupe.Grip{Key: r.Key, Owner: r.Owner, Incarnation: reply.Record.Incarnation}
}

// expired makes k claimed by a new owner whose lease has ended.
func (s *subject) expired(t *testing.T, k dedupe.Key) dedupe.Grip {
	t.Helper()
	r := s.claimRequest(k, newOwner())
	r.Lease = short
	g := s.claimedWith(t, r)
	s.h.Advance(t, past)
	return g
}

// failed makes k free with one failure more than before.
func (s *subject) failed(t *testing.T, k dedupe.Key) dedupe.Grip {
	t.Helper()
	g := s.claimed(t, k)
	isClaimed(t, s.release(t, failedRequest(g)))
	return g
}

func (s *subject) done(t *testing.T, k dedupe.Key) dedupe.Grip {
	t.Helper()
	g := s.claimed(t, k)
	isClaimed(t, s.complete(t, completeRequest(g)))
	return g
}

func (s *subject) dead(t *testing.T, k dedupe.Key) dedupe.Grip {
	t.Helper()
	g := s.claimed(t, k)
	isClaimed(t, s.bury(t, buryRequest(g)))
	return g
}

// What a test looks at.

func isClaimed(t *testing.T, r dedupe.Reply) {
	t.Helper()
	isVerdict(t, r, dedupe.Claimed)
}

func isVerdict(t *testing.T, r dedupe.Reply, want dedupe.Verdict) {
	t.Helper()
	if r.Err != nil || r.Verdict != want {
		t.Fatalf("answered %v, want %v", say(r), want)
	}
}

// isStale: the write did not happen, and the reply says whose the key is; zero: nobody's.
func isStale(t *testing.T, r dedupe.Reply, want dedupe.Verdict) {
	t.Helper()
	if !errors.Is(r.Err, dedupe.ErrStale) || r.Verdict != want {
		t.Fatalf("answered %v, want ErrStale and %v", say(r), want)
	}
}

// isRefused: an error that says that asking again is of no use.
func isRefused(t *testing.T, err error) {
	t.Helper()
	if err == nil || dedupe.IsOutage(err) || errors.Is(err, dedupe.ErrStale) {
		t.Fatalf("answered error %v, want one that asking again cannot mend", err)
	}
}

func say(r dedupe.Reply) string {
	return fmt.Sprintf("verdict %v, state %v, error %v", r.Verdict, r.Record.State, r.Err)
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
}

// isKeptFor: a done key may be forgotten d after it was written, and not earlier. A store that does not keep when it wrote is only
// asked to say when it forgets.
func isKeptFor(t *testing.T, r dedupe.Record, d time.Duration) {
	t.Helper()
	if r.ExpiresAt.IsZero() {
		t.Fatal("the record of a done key does not say when it may be forgotten")
	}
	if got := r.ExpiresAt.Sub(r.UpdatedAt); !r.UpdatedAt.IsZero() && (got < d-time.Second || got > d+time.Second) {
		t.Fatalf("may be forgotten %v after it was written, want %v", got, d)
	}
}
