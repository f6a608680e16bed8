package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/dedupe/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(t require.TestingT, id string) dedupe.Key {
	k, err := dedupe.NewKey("inventory", "orders", id)
	require.NoError(t, err)
	return k
}

func claimRequest(t require.TestingT, id string, o dedupe.Owner) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{Key: key(t, id), Owner: o, Fingerprint: dedupe.NoFingerprint, Lease: time.Minute, Retention: time.Hour}
}

func state(t require.TestingT, s dedupe.Store, id string) dedupe.State {
	recs, err := s.Inspect(context.Background(), []dedupe.Key{key(t, id)})
	require.NoError(t, err)
	require.Len(t, recs, 1)
	return recs[0].State
}

// byID fails requests whose key says how.
func byID(t *testing.T) func(context.Context, string, dedupe.Key) storetest.Fault {
	faults := map[dedupe.Key]storetest.Fault{key(t, "before"): storetest.Before, key(t, "after"): storetest.After, key(t, "late"): storetest.Late}
	return func(_ context.Context, op string, k dedupe.Key) storetest.Fault {
		if op == "inspect" {
			return storetest.None
		}
		return faults[k]
	}
}

func TestFaults_InABatch_EachRequestFailsAlone(t *testing.T) {
	s := memstore.New()
	f := &storetest.Faults{Decide: byID(t)}
	w := f.Store(s)
	ids := []string{"good", "before", "after", "late", "good too"}
	var reqs []dedupe.ClaimRequest
	for _, id := range ids {
		reqs = append(reqs, claimRequest(t, id, "me"))
	}
	replies := w.Claim(t.Context(), reqs)
	require.Len(t, replies, len(reqs))
	for i, id := range ids {
		switch id {
		case "before":
			require.ErrorIs(t, replies[i].Err, dedupe.ErrUnavailable)
			require.Equal(t, dedupe.StateAbsent, state(t, s, id))
		case "after":
			require.ErrorIs(t, replies[i].Err, dedupe.ErrOutcomeUnknown)
			require.Equal(t, dedupe.Reply{Err: replies[i].Err}, replies[i], "nothing of the reply gets through")
			require.Equal(t, dedupe.StateClaimed, state(t, s, id))
		case "late":
			require.ErrorIs(t, replies[i].Err, dedupe.ErrOutcomeUnknown)
			require.Equal(t, dedupe.StateAbsent, state(t, s, id))
		default:
			require.NoError(t, replies[i].Err)
			require.Equal(t, reqs[i].Key, replies[i].Record.Key)
		}
	}
	require.Equal(t, 1, f.ExecuteLate(t.Context()))
	require.Equal(t, dedupe.StateClaimed, state(t, s, "late"))
	require.Zero(t, f.ExecuteLate(t.Context()), "what was late is done once")
}

func TestFaults_EveryMethodOfALog_CanFailBeforeAndAfter(t *testing.T) {
	k := key(t, "1")
	grip := dedupe.Grip{Key: k, Owner: "me"}
	var seen []string
	fault := storetest.None
	f := &storetest.Faults{Decide: func(_ context.Context, op string, _ dedupe.Key) storetest.Fault {
		seen = append(seen, op)
		return fault
	}}
	l := memstore.NewLog()
	w := f.Log(l)
	require.Equal(t, l.Identity(), w.Identity())
	reply := func(rs []dedupe.Reply) error { return rs[0].Err }
	methods := map[string]func(ctx context.Context) error{
		"claim":       func(ctx context.Context) error { return reply(w.Claim(ctx, []dedupe.ClaimRequest{{Key: k}})) },
		"renew":       func(ctx context.Context) error { return reply(w.Renew(ctx, []dedupe.RenewRequest{{Grip: grip}})) },
		"complete":    func(ctx context.Context) error { return reply(w.Complete(ctx, []dedupe.CompleteRequest{{Grip: grip}})) },
		"release":     func(ctx context.Context) error { return reply(w.Release(ctx, []dedupe.ReleaseRequest{{Grip: grip}})) },
		"bury":        func(ctx context.Context) error { return reply(w.Bury(ctx, []dedupe.BuryRequest{{Grip: grip}})) },
		"learn":       func(ctx context.Context) error { return w.Learn(ctx, []dedupe.Record{{Key: k}}, time.Hour)[0] },
		"inspect":     func(ctx context.Context) error { _, err := w.Inspect(ctx, []dedupe.Key{k}); return err },
		"reopen":      func(ctx context.Context) error { _, err := w.Reopen(ctx, k, dedupe.Audit{}); return err },
		"forget":      func(ctx context.Context) error { return w.Forget(ctx, k, dedupe.Audit{}) },
		"check":       func(ctx context.Context) error { _, err := w.Check(ctx, dedupe.CheckEnv{}); return err },
		"enter":       func(ctx context.Context) error { _, err := w.Enter(ctx, dedupe.ScopeRow{}); return err },
		"changemode":  func(ctx context.Context) error { return w.ChangeMode(ctx, "inventory", dedupe.Logged, dedupe.Audit{}) },
		"incarnation": func(ctx context.Context) error { _, err := w.Incarnation(ctx); return err },
		"restored":    func(ctx context.Context) error { _, err := w.Restored(ctx, dedupe.Audit{}); return err },
		"purge":       func(ctx context.Context) error { _, err := w.Purge(ctx, "inventory", time.Hour, 1); return err },
	}
	for op, call := range methods {
		for _, fault = range []storetest.Fault{storetest.Before, storetest.After, storetest.Late} {
			seen = nil
			err := call(t.Context())
			require.Equal(t, []string{op}, seen)
			if fault == storetest.Before {
				require.ErrorIs(t, err, dedupe.ErrUnavailable, op)
			} else {
				require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown, op)
			}
			require.NotContains(t, err.Error(), "orders")
		}
	}
	require.Equal(t, len(methods)-1, f.ExecuteLate(t.Context()), "all but the read")
}

func TestFaults_OfAMemory_CanRemember(t *testing.T) {
	s := memstore.New()
	fault := storetest.After
	w := (&storetest.Faults{Decide: func(context.Context, string, dedupe.Key) storetest.Fault { return fault }}).Memory(s)
	_, err := w.Remember(t.Context(), "inventory")
	require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)
	s.Flush()
	fault = storetest.None
	require.ErrorIs(t, w.Claim(t.Context(), []dedupe.ClaimRequest{claimRequest(t, "1", "me")})[0].Err, dedupe.ErrMemoryLost, "it was remembered all the same")
}

// What a lost reply leaves open, asking again with the same owner settles: in the end the record is as if nothing had failed.
func TestFaults_AskedAgainUntilTheAnswerIsKnown_TheRecordIsAsWithoutFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_800_000_000, 0)
		clock := func() time.Time { return now }
		plain, failing := memstore.NewWithClock(clock), memstore.NewWithClock(clock)
		f := &storetest.Faults{Decide: func(context.Context, string, dedupe.Key) storetest.Fault {
			return rapid.SampledFrom([]storetest.Fault{storetest.None, storetest.Before, storetest.After}).Draw(t, "fault")
		}}
		w := f.Store(failing)
		ctx := context.Background()
		owner := dedupe.Owner("none yet")
		for i := range rapid.IntRange(1, 12).Draw(t, "calls") {
			grip := dedupe.Grip{Key: key(t, "1"), Owner: owner}
			var call func(s dedupe.Store) dedupe.Reply
			switch op := rapid.SampledFrom([]string{"claim", "claim", "redriven", "fail", "fail", "hand back", "complete", "bury", "wait"}).Draw(t, "op"); op {
			case "claim", "redriven":
				owner = dedupe.Owner(fmt.Sprint("owner ", i))
				req := claimRequest(t, "1", owner)
				req.Redriven = op == "redriven"
				call = func(s dedupe.Store) dedupe.Reply { return s.Claim(ctx, []dedupe.ClaimRequest{req})[0] }
			case "fail", "hand back":
				call = func(s dedupe.Store) dedupe.Reply {
					return s.Release(ctx, []dedupe.ReleaseRequest{{Grip: grip, Failed: op == "fail", Retention: time.Hour}})[0]
				}
			case "complete":
				call = func(s dedupe.Store) dedupe.Reply {
					return s.Complete(ctx, []dedupe.CompleteRequest{{Grip: grip, Result: []byte(owner), Retention: time.Hour}})[0]
				}
			case "bury":
				call = func(s dedupe.Store) dedupe.Reply {
					return s.Bury(ctx, []dedupe.BuryRequest{{Grip: grip, Reason: "poison", Retention: time.Hour}})[0]
				}
			default:
				now = now.Add(2 * time.Minute)
				continue
			}
			want, got := call(plain), call(w)
			for dedupe.IsOutage(got.Err) {
				got = call(w)
			}
			require.Equal(t, want.Verdict, got.Verdict)
			require.Equal(t, want.Err == nil, got.Err == nil)
			require.Equal(t, want.Record, got.Record)
		}
	})
}

// A claim that the server executes after its owner was told that nothing is known, and has gone: others wait one lease, and no longer.
func TestFaults_AClaimExecutedLate_CostsOneLease(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := memstore.NewWithClock(func() time.Time { return now })
	f := &storetest.Faults{Decide: byID(t)}
	f.Store(s).Claim(t.Context(), []dedupe.ClaimRequest{claimRequest(t, "late", "gone")})
	f.ExecuteLate(t.Context())
	next := claimRequest(t, "late", "next")
	require.Equal(t, dedupe.Busy, s.Claim(t.Context(), []dedupe.ClaimRequest{next})[0].Verdict)
	now = now.Add(next.Lease)
	require.Equal(t, dedupe.Claimed, s.Claim(t.Context(), []dedupe.ClaimRequest{next})[0].Verdict)
}

// harness opens stores that live by a clock moved by hand.
type harness struct {
	now  time.Time
	open func(now func() time.Time) dedupe.Store
}

func newHarness(open func(now func() time.Time) dedupe.Store) *harness {
	return &harness{time.Unix(1_800_000_000, 0), open}
}

func (h *harness) Open(*testing.T) dedupe.Store { return h.open(func() time.Time { return h.now }) }

func (h *harness) Advance(_ *testing.T, d time.Duration) { h.now = h.now.Add(d) }

func TestFaults_NoneDecided_AStoreBehavesAsItDid(t *testing.T) {
	for name, open := range map[string]func(now func() time.Time) dedupe.Store{
		"store": func(now func() time.Time) dedupe.Store {
			return new(storetest.Faults).Store(memstore.NewWithClock(now))
		},
		"log": func(now func() time.Time) dedupe.Store {
			return new(storetest.Faults).Log(memstore.NewLogWithClock(now))
		},
		"memory": func(now func() time.Time) dedupe.Store {
			return new(storetest.Faults).Memory(memstore.NewWithClock(now))
		},
	} {
		t.Run(name, func(t *testing.T) { storetest.Run(t, newHarness(open)) })
	}
}
