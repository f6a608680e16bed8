package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/internal/testenv"
)

// What happens to replies: lost, cut, scripts unknown to the server, values that are not ours.

// A reply lost after the script ran, which go-redis would take for somebody else's claim if it retried (#2985). PROTOCOL.md, 2: a reply
// that got lost is asked for by repeating the same statement with the same owner.
func TestReplyLost_TheSameOwnerAsksAgain_AndIsAnsweredTheSame(t *testing.T) {
	p := newProxy(t, testenv.Redis(t))
	// Handed-in clients may retry: commands of ours are not sent twice all the same, and a cut is never taken for "not sent".
	s, _ := newStore(t, p.url, func(c *redisstore.Config) { c.Breaker.Failures = 1000 })
	sc := scope()

	// twice runs op with its reply cut, then again, and checks that the second answer is in place.
	twice := func(t *testing.T, op func() dedupe.Reply) dedupe.Record {
		t.Helper()
		cuts := p.replyCuts.Load()
		p.cut() // no connection of the pool survives, so that the cut is of this command's reply and of no handshake
		eventually(t, "a new connection", func() bool { return s.Forget(t.Context(), key(t, sc, "warm up"), dedupe.Audit{}) == nil })
		p.dropping.Store(true)
		first := op()
		p.dropping.Store(false)
		require.ErrorIs(t, first.Err, dedupe.ErrOutcomeUnknown)
		require.NotErrorIs(t, first.Err, dedupe.ErrUnavailable)
		require.Greater(t, p.replyCuts.Load(), cuts)
		second := op()
		require.NoError(t, second.Err)
		require.Equal(t, dedupe.Claimed, second.Verdict)
		return second.Record
	}

	k := key(t, sc, "1")
	rec := twice(t, func() dedupe.Reply { return claim(t, s, k, "me") })
	require.Zero(t, rec.Deaths)
	require.Equal(t, rec.Fence, claimed(t, s, k, "me").Fence)
	require.Equal(t, dedupe.Busy, claim(t, s, k, "other").Verdict)

	twice(t, func() dedupe.Reply {
		return s.Renew(t.Context(), []dedupe.RenewRequest{{Grip: grip(k, "me"), Lease: lease}})[0]
	})
	rec = twice(t, func() dedupe.Reply {
		return s.Release(t.Context(), []dedupe.ReleaseRequest{{Grip: grip(k, "me"), Failed: true}})[0]
	})
	require.Equal(t, 1, rec.Failures, "counted once")

	claimed(t, s, k, "me2")
	rec = twice(t, func() dedupe.Reply {
		return s.Complete(t.Context(), []dedupe.CompleteRequest{{Grip: grip(k, "me2"), Retention: retention, Result: []byte("r")}})[0]
	})
	require.Equal(t, "r", string(rec.Result))

	k = key(t, sc, "2")
	claimed(t, s, k, "me3")
	rec = twice(t, func() dedupe.Reply {
		return s.Bury(t.Context(), []dedupe.BuryRequest{{Grip: grip(k, "me3"), Reason: "died", Retention: retention}})[0]
	})
	require.Equal(t, "died", rec.Reason)
}

func TestReplyLost_InOneBatch_EveryRequestIsAnswered(t *testing.T) {
	p := newProxy(t, testenv.Redis(t))
	s, _ := newStore(t, p.url)
	sc := scope()
	reqs := make([]dedupe.ClaimRequest, 50)
	for i := range reqs {
		reqs[i] = claimOf(key(t, sc, fmt.Sprint(i)), "me")
	}
	require.NoError(t, s.Forget(t.Context(), key(t, sc, "warm up"), dedupe.Audit{}))
	p.dropping.Store(true)
	for _, r := range s.Claim(t.Context(), reqs) {
		require.ErrorIs(t, r.Err, dedupe.ErrOutcomeUnknown)
	}
	p.dropping.Store(false)
	for _, r := range s.Claim(t.Context(), reqs) {
		require.NoError(t, r.Err)
		require.Equal(t, dedupe.Claimed, r.Verdict)
	}
}

// go-redis #3228, #536: NOSCRIPT has no fallback in a pipeline, and SCRIPT LOAD reaches one node.
func TestScriptFlush_BetweenAndBeforeBatches_ChangesNoAnswer(t *testing.T) {
	server := testenv.OwnRedis(t)
	s, _ := newStore(t, server.URL)
	sc := scope()
	for round := range 3 {
		require.NoError(t, admin(t, server.Addr).ScriptFlush(t.Context()).Err())
		var reqs []dedupe.ClaimRequest
		for i := range 20 {
			reqs = append(reqs, claimOf(key(t, sc, fmt.Sprint(i)), "me"))
		}
		for i, r := range s.Claim(t.Context(), reqs) {
			require.NoError(t, r.Err, i)
			require.Equal(t, dedupe.Claimed, r.Verdict, "round %d, request %d", round, i)
		}
	}
}

func TestScriptFlush_TheSameKeyTwiceInACall_IsDecidedInOrder(t *testing.T) {
	server := testenv.OwnRedis(t)
	s, _ := newStore(t, server.URL)
	k := key(t, scope(), "1")
	require.NoError(t, admin(t, server.Addr).ScriptFlush(t.Context()).Err())
	replies := s.Claim(t.Context(), []dedupe.ClaimRequest{claimOf(k, "first"), claimOf(k, "second"), claimOf(k, "first")})
	require.Equal(t, dedupe.Claimed, replies[0].Verdict)
	require.Equal(t, dedupe.Busy, replies[1].Verdict)
	require.Equal(t, dedupe.Claimed, replies[2].Verdict)
}

// A value of a foreign format is "ask the log", never absent and never overwritten; it fails none of its neighbours.
func TestForeignValue_IsRefusedByEveryOperation_AndKept(t *testing.T) {
	s, rdb := newStore(t, testenv.Redis(t))
	sc := scope()
	good := doneGood(t, s, sc)
	other := key(t, sc, "foreign")
	redisKey := redisKeyOf(t, s, rdb, other)
	valid := func() string {
		claimed(t, s, other, "x")
		v := rdb.Get(t.Context(), redisKey).Val()
		require.True(t, strings.HasPrefix(v, "idemq1 claimed "), v)
		return v
	}()

	for name, value := range map[string]string{
		"empty":              "",
		"SET NX of others":   "1",
		"newer version":      "idemq2" + strings.TrimPrefix(valid, "idemq1"),
		"older version":      "idemq0" + strings.TrimPrefix(valid, "idemq1"),
		"cut off":            valid[:len(valid)-1],
		"longer":             valid + "x",
		"unknown state":      strings.Replace(valid, "claimed", "parked", 1),
		"absent is no state": strings.Replace(valid, "claimed", "absent", 1),
		"negative":           strings.Replace(valid, "idemq1 claimed ", "idemq1 claimed -", 1),
		"bytes":              "\x00\xff\xfe",
		"json":               `{"state":"DONE"}`,
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, rdb.Set(t.Context(), redisKey, value, 0).Err())
			refusesForeign(t, s, other, good)
			require.Equal(t, value, rdb.Get(t.Context(), redisKey).Val())
			require.Equal(t, time.Duration(-1), rdb.TTL(t.Context(), redisKey).Val(), "no time to live was set")
		})
	}
	t.Run("another type", func(t *testing.T) {
		require.NoError(t, rdb.Del(t.Context(), redisKey).Err())
		require.NoError(t, rdb.HSet(t.Context(), redisKey, "state", "done").Err())
		refusesForeign(t, s, other, good)
		require.Equal(t, "done", rdb.HGet(t.Context(), redisKey, "state").Val())
	})
	t.Run("where Redis is the authority, repeating cannot mend it", func(t *testing.T) {
		_, err := s.Remember(t.Context(), sc)
		require.NoError(t, err)
		r := claim(t, s, other, "me")
		require.ErrorIs(t, r.Err, redisstore.ErrForeign)
		require.False(t, dedupe.IsOutage(r.Err), r.Err)
	})
}

func doneGood(t *testing.T, s dedupe.Store, sc string) dedupe.Key {
	k := key(t, sc, "good")
	done(t, s, k, "me")
	return k
}

func refusesForeign(t *testing.T, s *redisstore.Store, k, good dedupe.Key) {
	t.Helper()
	ctx, g, ng := t.Context(), grip(k, "x"), grip(good, "me")
	check := func(op string, rs []dedupe.Reply) {
		t.Helper()
		require.ErrorIs(t, rs[0].Err, redisstore.ErrForeign, op)
		require.ErrorIs(t, rs[0].Err, dedupe.ErrUnavailable, op)
		require.NotErrorIs(t, rs[1].Err, redisstore.ErrForeign, op)
	}
	check("claim", s.Claim(ctx, []dedupe.ClaimRequest{claimOf(k, "x"), claimOf(good, "x")}))
	check("renew", s.Renew(ctx, []dedupe.RenewRequest{{Grip: g, Lease: lease}, {Grip: ng, Lease: lease}}))
	check("complete", s.Complete(ctx, []dedupe.CompleteRequest{{Grip: g, Retention: retention, Unclaimed: true}, {Grip: ng, Retention: retention}}))
	check("release", s.Release(ctx, []dedupe.ReleaseRequest{{Grip: g, Retention: retention, Unclaimed: true}, {Grip: ng}}))
	check("bury", s.Bury(ctx, []dedupe.BuryRequest{{Grip: g, Retention: retention, Unclaimed: true}, {Grip: ng}}))
	errs := s.Learn(ctx, []dedupe.Record{{Key: k, State: dedupe.StateDone}, {Key: good, State: dedupe.StateDone}}, retention)
	require.ErrorIs(t, errs[0], redisstore.ErrForeign)
	require.NoError(t, errs[1])
	_, err := s.Inspect(ctx, []dedupe.Key{k})
	require.ErrorIs(t, err, redisstore.ErrForeign)
	_, err = s.Reopen(ctx, k, dedupe.Audit{})
	require.ErrorIs(t, err, redisstore.ErrForeign)
	require.ErrorIs(t, s.Forget(ctx, k, dedupe.Audit{}), redisstore.ErrForeign)
}

// ” .. 1234567890123456 gives 1.2345678901235e+15 in Lua.
func TestNumbers_AreNeverFloats(t *testing.T) {
	s, rdb := newStore(t, testenv.Redis(t))
	k := key(t, scope(), "1")
	const fence = int64(8_234_567_890_123_457) // above every clock, below 2^53
	rec := dedupe.Record{Key: k, State: dedupe.StateFree, Owner: "x", Fence: fence, Failures: 1_234_567_890, Generation: 7}
	require.NoError(t, s.Learn(t.Context(), []dedupe.Record{rec}, 3650*24*time.Hour)[0])
	got := inspect(t, s, k)
	require.Equal(t, fence, got.Fence)
	require.Equal(t, 1_234_567_890, got.Failures)
	require.Equal(t, fence+1, claimed(t, s, k, "me").Fence, "never below the last fence, though the clock is")
	value := rdb.Get(t.Context(), redisKeyOf(t, s, rdb, k)).Val()
	header, _, _ := strings.Cut(value, "\n")
	require.Regexp(t, `^idemq1 [a-z]+( [0-9]+){17}$`, header)
}

// TTL under a millisecond or a second (asynq #338); remaining time 0 read as none (Powertools py#4759).
func TestTimes_UnderAMillisecond_AreRoundedUpNeverNone(t *testing.T) {
	s, rdb := newStore(t, testenv.Redis(t))
	k := key(t, scope(), "1")
	r := claimOf(k, "me")
	r.Lease, r.Retention = time.Millisecond+time.Nanosecond, time.Nanosecond
	require.NoError(t, s.Claim(t.Context(), []dedupe.ClaimRequest{r})[0].Err)
	done(t, s, key(t, k.Scope(), "2"), "me")
	for _, ttl := range ttls(t, rdb, k.Scope()) {
		require.NotEqual(t, time.Duration(-1), ttl, "every key is forgotten one day") // -2: it is forgotten already
	}
}

// Fences grow with each claim whatever the claim before became.
func TestFences_GrowOverReleaseTakeoverAndReopen(t *testing.T) {
	s, _ := newStore(t, testenv.Redis(t))
	k := key(t, scope(), "1")
	last := int64(0)
	grown := func(owner dedupe.Owner) {
		t.Helper()
		fence := claimed(t, s, k, owner).Fence
		require.Greater(t, fence, last)
		last = fence
	}
	for i := range 20 { // many within one millisecond
		o := dedupe.Owner(fmt.Sprint("r", i))
		grown(o)
		require.NoError(t, s.Release(t.Context(), []dedupe.ReleaseRequest{{Grip: grip(k, o)}})[0].Err)
	}
	grown("b")
	require.NoError(t, s.Bury(t.Context(), []dedupe.BuryRequest{{Grip: grip(k, "b"), Retention: retention}})[0].Err)
	_, err := s.Reopen(t.Context(), k, dedupe.Audit{By: "me", Reason: "fixed"})
	require.NoError(t, err)
	grown("c")
}

func TestContext_EndedBefore_NothingIsSent(t *testing.T) {
	s, _ := newStore(t, testenv.Redis(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	k := key(t, scope(), "1")
	r := s.Claim(ctx, []dedupe.ClaimRequest{claimOf(k, "me")})[0]
	require.ErrorIs(t, r.Err, dedupe.ErrUnavailable)
	require.ErrorIs(t, r.Err, context.Canceled)
	require.Equal(t, dedupe.StateAbsent, inspect(t, s, k).State)
}
