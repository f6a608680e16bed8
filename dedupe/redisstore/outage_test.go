package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/internal/testenv"
)

// quick makes a breaker close soon.
func quick(c *redisstore.Config) { c.Breaker.Probe = 50 * time.Millisecond }

const short = 300 * time.Millisecond

// impatient is a Store for servers that hang. On a busy machine it may be unlucky with others too.
func impatient(c *redisstore.Config) { c.Timeout = short }

func eventuallyClaimed(t testing.TB, s dedupe.Store, k dedupe.Key, o dedupe.Owner) (r dedupe.Reply) {
	t.Helper()
	eventually(t, "a claim is answered", func() bool { r = claim(t, s, k, o); return r.Err == nil })
	require.Equal(t, dedupe.Claimed, r.Verdict)
	return r
}

// A refused connection took 1.7 s to surface with go-redis's defaults.
func TestOutage_RefusedConnection_IsUnavailableAtOnce(t *testing.T) {
	server := testenv.OwnRedis(t)
	require.NoError(t, server.Stop())
	s, _ := newStore(t, server.URL)
	k := key(t, scope(), "1")
	for range 2 {
		start := time.Now()
		r := claim(t, s, k, "me")
		require.ErrorIs(t, r.Err, dedupe.ErrUnavailable)
		require.NotErrorIs(t, r.Err, dedupe.ErrOutcomeUnknown)
		require.Less(t, time.Since(start), 10*time.Second, "no timeout was waited for")
	}
}

func TestOutage_KilledAndStartedEmpty_ClaimsGoOnWithLargerFences(t *testing.T) {
	server := testenv.OwnRedis(t)
	s, _ := newStore(t, server.URL, quick)
	k := key(t, scope(), "1")
	done(t, s, k, "me")
	before := inspect(t, s, k).Fence
	require.NoError(t, server.Kill())
	for range 5 {
		r := claim(t, s, k, "me too")
		require.True(t, dedupe.IsOutage(r.Err), r.Err)
	}
	require.NoError(t, server.Start())
	var r dedupe.Reply
	eventually(t, "the breaker closes", func() bool { r = claim(t, s, k, "me too"); return r.Err == nil })
	require.Equal(t, dedupe.Claimed, r.Verdict, "Redis forgot; in RedisOnly Remember notices")
	require.Greater(t, r.Record.Fence, before, "a plain INCR would have begun again")
}

func TestOutage_FrozenServer_CostsThreeTimeoutsAndNoMessageMore(t *testing.T) {
	server := testenv.OwnRedis(t)
	warm, rdb := newStore(t, server.URL)
	k := key(t, scope(), "1")
	claimed(t, warm, k, "me")
	s := redisstore.New(rdb, redisstore.Config{Timeout: short, Breaker: redisstore.Breaker{Probe: time.Hour}})
	require.NoError(t, server.Pause())
	t.Cleanup(func() { require.NoError(t, server.Resume()) })
	for range 3 {
		r := claim(t, s, k, "me")
		require.ErrorIs(t, r.Err, dedupe.ErrOutcomeUnknown, "it was sent")
	}
	start := time.Now()
	for range 1000 {
		r := claim(t, s, k, "me")
		require.ErrorIs(t, r.Err, dedupe.ErrUnavailable)
		require.ErrorContains(t, r.Err, "breaker is open")
	}
	require.Less(t, time.Since(start), 100*short, "a thousand messages")
}

func TestOutage_ClientPause_TheBreakerOpensAndClosesAgain(t *testing.T) {
	server := testenv.OwnRedis(t)
	s, _ := newStore(t, server.URL, quick, impatient)
	k := key(t, scope(), "1")
	fence := eventuallyClaimed(t, s, k, "me").Record.Fence
	ops := admin(t, server.Addr)
	require.NoError(t, ops.Do(t.Context(), "CLIENT", "PAUSE", 3_000, "ALL").Err())
	eventually(t, "the breaker opens", func() bool {
		r := claim(t, s, k, "me")
		require.True(t, dedupe.IsOutage(r.Err), r.Err)
		return strings.Contains(r.Err.Error(), "breaker is open")
	})
	var r dedupe.Reply
	eventually(t, "the breaker closes once the pause is over", func() bool { r = claim(t, s, k, "me"); return r.Err == nil })
	require.Equal(t, fence, r.Record.Fence, "what was sent during the pause was the same owner's")
	require.Zero(t, r.Record.Deaths)
}

// A duplicate counted as an outage (idempot-js #181), and the other way round.
func TestBreaker_CountsNeitherAnswersNorCallersWhoGaveUp(t *testing.T) {
	server := testenv.OwnRedis(t)
	s, _ := newStore(t, server.URL, func(c *redisstore.Config) { c.Breaker.Failures = 1 })
	sc := scope()
	k := key(t, sc, "busy")
	claimed(t, s, k, "me")
	for range 5 {
		require.Equal(t, dedupe.Busy, claim(t, s, k, "other").Verdict)
	}
	require.NoError(t, server.Pause())
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		r := s.Claim(ctx, []dedupe.ClaimRequest{claimOf(k, "me")})[0]
		cancel()
		require.ErrorIs(t, r.Err, dedupe.ErrOutcomeUnknown)
	}
	require.NoError(t, server.Resume())
	claimed(t, s, k, "me")
}

// Under noeviction a full server answers OOM: that is an outage, not a duplicate.
func TestOutage_OutOfMemory_IsUnavailableAndForgetsNothing(t *testing.T) {
	server := testenv.OwnRedis(t, "maxmemory-policy noeviction")
	s, _ := newStore(t, server.URL)
	sc := scope()
	done(t, s, key(t, sc, "done"), "me")
	claimed(t, s, key(t, sc, "held"), "me")
	ops := admin(t, server.Addr)
	require.NoError(t, ops.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	for range 5 { // no breaker: the server answers
		r := claim(t, s, key(t, sc, "new"), "me")
		require.ErrorIs(t, r.Err, dedupe.ErrUnavailable)
		require.ErrorContains(t, r.Err, "OOM")
	}
	r := s.Complete(t.Context(), []dedupe.CompleteRequest{{Grip: grip(key(t, sc, "held"), "me"), Retention: retention}})[0]
	require.ErrorIs(t, r.Err, dedupe.ErrUnavailable)
	require.Equal(t, dedupe.StateDone, inspect(t, s, key(t, sc, "done")).State)
	require.Equal(t, dedupe.Done, claim(t, s, key(t, sc, "done"), "other").Verdict)
	require.NoError(t, ops.ConfigSet(t.Context(), "maxmemory", "0").Err())
	r = s.Complete(t.Context(), []dedupe.CompleteRequest{{Grip: grip(key(t, sc, "held"), "me"), Retention: retention}})[0]
	require.NoError(t, r.Err)
}

func TestOutage_ReadOnlyReplica_IsUnavailable(t *testing.T) {
	master := testenv.OwnRedis(t)
	replica := testenv.OwnRedisReplica(t, master)
	s, _ := newStore(t, replica.URL)
	r := claim(t, s, key(t, scope(), "1"), "me")
	require.ErrorIs(t, r.Err, dedupe.ErrUnavailable)
	require.ErrorContains(t, r.Err, "READONLY")
}

// A client with go-redis's defaults tries a cut command again. Ours are sent once: a claim that was sent and then met a refused
// connection is not "surely not done".
func TestOutage_ClientThatRetries_SendsOnceAndNeverSaysNotDone(t *testing.T) {
	p := newProxy(t, testenv.Redis(t))
	o, err := redis.ParseURL(p.url)
	require.NoError(t, err)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { rdb.Close() })
	s := redisstore.New(rdb, redisstore.Config{Timeout: time.Minute})
	k := key(t, scope(), "1")
	claimed(t, s, k, "me")
	p.dropping.Store(true)
	before := p.replyCuts.Load()
	r := claim(t, s, k, "me")
	require.ErrorIs(t, r.Err, dedupe.ErrOutcomeUnknown)
	require.Equal(t, before+1, p.replyCuts.Load(), "sent once")
	p.dropping.Store(false)
	claimed(t, s, k, "me")
}

// Redis error taken for "not acquired" (CarbonScribe #650): an error has no verdict.
func TestOutage_NoAnswerHasAVerdict(t *testing.T) {
	server := testenv.OwnRedis(t)
	require.NoError(t, server.Stop())
	s, _ := newStore(t, server.URL)
	ctx, k, g := t.Context(), key(t, scope(), "1"), grip(key(t, "t", "1"), "me")
	for op, replies := range map[string][]dedupe.Reply{
		"claim":    s.Claim(ctx, []dedupe.ClaimRequest{claimOf(k, "me"), claimOf(k, "other")}),
		"renew":    s.Renew(ctx, []dedupe.RenewRequest{{Grip: g, Lease: lease}}),
		"complete": s.Complete(ctx, []dedupe.CompleteRequest{{Grip: g, Retention: retention}}),
		"release":  s.Release(ctx, []dedupe.ReleaseRequest{{Grip: g}}),
		"bury":     s.Bury(ctx, []dedupe.BuryRequest{{Grip: g}}),
	} {
		for _, r := range replies {
			require.ErrorIs(t, r.Err, dedupe.ErrUnavailable, op)
			require.Zero(t, r.Verdict, op)
			require.ErrorContains(t, r.Err, "redisstore: "+op+" ")
		}
	}
	_, err := s.Inspect(ctx, []dedupe.Key{k})
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	_, err = s.Reopen(ctx, k, dedupe.Audit{})
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	require.ErrorIs(t, s.Forget(ctx, k, dedupe.Audit{}), dedupe.ErrUnavailable)
	require.ErrorIs(t, s.Learn(ctx, []dedupe.Record{{Key: k, State: dedupe.StateDone}}, retention)[0], dedupe.ErrUnavailable)
	_, err = s.Check(ctx, dedupe.CheckEnv{Scope: "t", Mode: dedupe.Logged, Lease: lease, Retention: retention})
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
}

// In a batch, each key is answered for itself.
func TestBatch_OneBadRequest_FailsNoNeighbour(t *testing.T) {
	s, _ := newStore(t, testenv.Redis(t))
	sc := scope()
	var reqs []dedupe.ClaimRequest
	for i := range 30 {
		reqs = append(reqs, claimOf(key(t, sc, fmt.Sprint(i)), "me"))
	}
	reqs[3].Owner, reqs[4].Lease, reqs[5].Key = "", 0, dedupe.Key{}
	for i, r := range s.Claim(t.Context(), reqs) {
		if 3 <= i && i <= 5 {
			require.Error(t, r.Err)
			require.False(t, dedupe.IsOutage(r.Err))
		} else {
			require.Equal(t, dedupe.Claimed, r.Verdict, i)
		}
	}
	require.Empty(t, s.Claim(t.Context(), nil))
}

// A call that changes nothing has no outcome that could be unknown, and what may simply be repeated neither.
func TestOutage_InspectRememberAndCheck_AreNeverOutcomeUnknown(t *testing.T) {
	server := testenv.OwnRedis(t)
	warm, rdb := newStore(t, server.URL)
	k := key(t, scope(), "1")
	claimed(t, warm, k, "me") // the connection is there: commands are sent
	s := redisstore.New(rdb, redisstore.Config{Timeout: short, Breaker: redisstore.Breaker{Failures: 1000}})
	require.NoError(t, server.Pause())
	t.Cleanup(func() { require.NoError(t, server.Resume()) })
	_, inspectErr := s.Inspect(t.Context(), []dedupe.Key{k})
	_, rememberErr := s.Remember(t.Context(), k.Scope())
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	_, checkErr := s.Check(ctx, env(dedupe.Logged))
	for op, err := range map[string]error{"inspect": inspectErr, "remember": rememberErr, "check": checkErr} {
		require.ErrorIs(t, err, dedupe.ErrUnavailable, op)
		require.NotErrorIs(t, err, dedupe.ErrOutcomeUnknown, op)
	}
}

// A fresh user saw nothing of ours when Redis died.
func TestOutage_Begins_IsOneWarningWithTheAddressToSlogsDefault(t *testing.T) {
	var b bytes.Buffer // a handler locks it
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	server := testenv.OwnRedis(t)
	s, _ := newStore(t, server.URL)
	slog.SetDefault(was)
	k := key(t, scope(), "1")
	claimed(t, s, k, "me")
	require.Empty(t, b.String())
	require.NoError(t, server.Kill())
	for range 10 {
		require.Error(t, claim(t, s, k, "me").Err)
	}
	require.Equal(t, 1, strings.Count(b.String(), "\n"), b.String())
	require.Contains(t, b.String(), `level=WARN msg="redis does not answer" addr=`+server.Addr+` failures=3 err=`)
}
