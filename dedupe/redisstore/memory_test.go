package redisstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/internal/testenv"
)

// PROTOCOL.md, 8: as far as Redis remembers, and no further; that it does not is noticed.

func remember(t testing.TB, s *redisstore.Store, scope string) (lost bool) {
	t.Helper()
	lost, err := s.Remember(t.Context(), scope)
	require.NoError(t, err)
	return lost
}

func requireLost(t testing.TB, s dedupe.Store, k dedupe.Key) {
	t.Helper()
	r := claim(t, s, k, "me too")
	require.ErrorIs(t, r.Err, dedupe.ErrMemoryLost)
	require.False(t, dedupe.IsOutage(r.Err), r.Err)
	require.Zero(t, r.Verdict)
}

func TestMemory_Flushed_IsNoticedByTheNextClaim(t *testing.T) {
	server := testenv.OwnRedis(t)
	s, rdb := newStore(t, server.URL)
	sc := scope()
	require.False(t, remember(t, s, sc))
	done(t, s, key(t, sc, "1"), "me")
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	requireLost(t, s, key(t, sc, "1"))
	requireLost(t, s, key(t, sc, "2"))
	require.Equal(t, dedupe.Claimed, claim(t, s, key(t, scope(), "1"), "me").Verdict, "a scope that has a log is not concerned")
}

// A process that starts after the loss accepts it; those that run must not take its marks for theirs.
func TestMemory_LostAndRememberedByAnother_IsStillLostForThoseWhoKnewIt(t *testing.T) {
	server := testenv.OwnRedis(t)
	old, rdb := newStore(t, server.URL)
	sc := scope()
	remember(t, old, sc)
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	started, _ := newStore(t, server.URL)
	remember(t, started, sc)
	claimed(t, started, key(t, sc, "1"), "me")
	requireLost(t, old, key(t, sc, "2"))
	remember(t, old, sc)
	claimed(t, old, key(t, sc, "2"), "me")
	claimed(t, started, key(t, sc, "3"), "me")
}

func TestMemory_KilledAndStartedEmpty_IsNoticed(t *testing.T) {
	server := testenv.OwnRedis(t)
	s, _ := newStore(t, server.URL, quick)
	sc := scope()
	remember(t, s, sc)
	done(t, s, key(t, sc, "1"), "me")
	require.NoError(t, server.Restart())
	eventually(t, "an answer", func() bool { return !dedupe.IsOutage(claim(t, s, key(t, sc, "1"), "me too").Err) })
	requireLost(t, s, key(t, sc, "1"))
}

// A restart with an old file still has the marks: the server's identity tells.
func TestMemory_StartedWithAnOldFile_IsNoticedAtOnce(t *testing.T) {
	server := testenv.OwnRedis(t)
	s, rdb := newStore(t, server.URL, quick)
	sc := scope()
	remember(t, s, sc)
	require.NoError(t, rdb.Save(t.Context()).Err())
	done(t, s, key(t, sc, "after the snapshot"), "me")
	require.NoError(t, server.Restart())
	var r dedupe.Reply
	eventually(t, "an answer", func() bool {
		r = claim(t, s, key(t, sc, "after the snapshot"), "me too")
		return !dedupe.IsOutage(r.Err)
	})
	require.ErrorIs(t, r.Err, dedupe.ErrMemoryLost, "not one claim was won in the old memory")
	again, _ := newStore(t, server.URL)
	require.True(t, remember(t, again, sc))
	require.False(t, remember(t, again, sc), "accepted")
	require.True(t, dedupe.Claimed == claim(t, again, key(t, sc, "after the snapshot"), "me too").Verdict, "it WILL apply again")
}

// Asynchronous replication: the master acknowledges what the replica never hears of, and the sentinel promotes the replica.
func TestMemory_SentinelFailoverThatLosesWrites_IsNoticed(t *testing.T) {
	env := testenv.OwnRedisSentinel(t)
	s, _ := newStore(t, env.URL, quick)
	sc := scope()
	remember(t, s, sc)
	master, replica := admin(t, env.Master.Addr), admin(t, env.Replica.Addr)
	eventually(t, "the replica has the marks", func() bool { return len(replica.Keys(t.Context(), "*"+sc+"*").Val()) == 16 })
	cutLink(t, replica)
	done(t, s, key(t, sc, "lost"), "me")
	require.Empty(t, replica.Keys(t.Context(), "*lost").Val())
	require.Len(t, master.Keys(t.Context(), "*lost").Val(), 1, "acknowledged")
	require.NoError(t, env.Master.Kill())

	var r dedupe.Reply
	eventually(t, "an answer of the promoted replica", func() bool {
		r = claim(t, s, key(t, sc, "lost"), "me too")
		return !dedupe.IsOutage(r.Err)
	})
	require.ErrorIs(t, r.Err, dedupe.ErrMemoryLost)
	again, _ := newStore(t, env.URL)
	require.True(t, remember(t, again, sc))
}

// cutLink makes a replica follow nobody that answers, so that it hears of nothing more.
func cutLink(t testing.TB, replica *redis.Client) {
	t.Helper()
	require.NoError(t, replica.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
}

// A server that was demoted and promoted keeps its run_id, its connections, and here even the marks.
func TestMemory_DemotedAndPromotedServer_IsNoticed(t *testing.T) {
	first := testenv.OwnRedis(t)
	s, _ := newStore(t, first.URL)
	sc := scope()
	second := testenv.OwnRedisReplica(t, first)
	remember(t, s, sc)
	one, two := admin(t, first.Addr), admin(t, second.Addr)
	eventually(t, "the replica has the marks", func() bool { return len(two.Keys(t.Context(), "*"+sc+"*").Val()) == 16 })
	cutLink(t, two)
	done(t, s, key(t, sc, "lost"), "me")
	runID := field(t, one, "server", "run_id")

	require.NoError(t, two.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	host, port, _ := strings.Cut(second.Addr, ":")
	require.NoError(t, one.Do(t.Context(), "REPLICAOF", host, port).Err())
	eventually(t, "demoted", func() bool { return field(t, one, "replication", "master_link_status") == "up" })
	require.NoError(t, one.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	require.Equal(t, runID, field(t, one, "server", "run_id"))
	require.Empty(t, one.Keys(t.Context(), "*lost").Val())

	eventually(t, "noticed within a second or so", func() bool {
		r := claim(t, s, key(t, sc, "something else"), "me")
		return r.Err != nil && strings.Contains(r.Err.Error(), "another server answers")
	})
	requireLost(t, s, key(t, sc, "lost"))
}

func field(t testing.TB, rdb *redis.Client, section, name string) string {
	t.Helper()
	for line := range strings.SplitSeq(rdb.Info(t.Context(), section).Val(), "\r\n") {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return v
		}
	}
	return ""
}

// DECISIONS.md, 17: the shard count is in the scope key and another is refused.
func TestMemory_OtherShardCount_IsRefusedByName(t *testing.T) {
	url := testenv.Redis(t)
	sixteen, rdb := newStore(t, url)
	sc := scope()
	remember(t, sixteen, sc)
	marks := func() int { return len(rdb.Keys(t.Context(), "*"+sc+"*").Val()) }
	for _, n := range []int{1, 8, 32} {
		other, _ := newStore(t, url, func(c *redisstore.Config) { c.Shards = n })
		_, err := other.Remember(t.Context(), sc)
		require.ErrorContains(t, err, "spread over 16 shards, and Config.Shards is "+fmt.Sprint(n))
		require.False(t, dedupe.IsOutage(err))
		require.Equal(t, 16, marks(), "and nothing was written")
	}

	// A mark of another count that comes later: all of it was flushed, and somebody else was first.
	require.NoError(t, rdb.FlushDB(t.Context()).Err())
	one, _ := newStore(t, url, func(c *redisstore.Config) { c.Shards = 1 })
	remember(t, one, sc)
	for i := range 64 {
		r := claim(t, sixteen, key(t, sc, fmt.Sprint(i)), "me")
		require.Error(t, r.Err, "a shard has no mark, or one of another count")
		require.False(t, dedupe.IsOutage(r.Err), r.Err)
	}
}

func TestMemory_OneMarkGone_IsALossForItsShardAndForRemember(t *testing.T) {
	s, rdb := newStore(t, testenv.Redis(t))
	sc := scope()
	remember(t, s, sc)
	marks := rdb.Keys(t.Context(), "*"+sc+"*").Val()
	slices.Sort(marks)
	for _, mark := range marks {
		require.Equal(t, time.Duration(-1), rdb.TTL(t.Context(), mark).Val(), "a mark is never forgotten by itself")
		require.NoError(t, rdb.Del(t.Context(), mark).Err())
		lost, held := 0, 0
		for i := range 100 {
			if r := claim(t, s, key(t, sc, fmt.Sprint(i)), "me"); r.Err != nil {
				require.ErrorIs(t, r.Err, dedupe.ErrMemoryLost)
				lost++
			} else {
				held++
			}
		}
		require.Positive(t, lost)
		require.Positive(t, held)
		require.True(t, remember(t, s, sc), "without %s", mark)
		require.False(t, remember(t, s, sc))
	}
}

func TestMemory_ManyStartAtOnce_AgreeAndNobodyFindsALoss(t *testing.T) {
	url := testenv.Redis(t)
	sc := scope()
	type result struct {
		s    *redisstore.Store
		lost bool
		err  error
	}
	results := make(chan result)
	for range 8 {
		s, _ := newStore(t, url)
		go func() {
			lost, err := s.Remember(t.Context(), sc)
			results <- result{s, lost, err}
		}()
	}
	var stores []*redisstore.Store
	for range 8 {
		r := <-results
		require.NoError(t, r.err)
		require.False(t, r.lost)
		stores = append(stores, r.s)
	}
	for i, s := range stores {
		for n := range 32 {
			claimed(t, s, key(t, sc, fmt.Sprint(i, "/", n)), "me")
		}
	}
}

// Restricted and imitated servers do not tell who they are: the marks still do.
func TestMemory_ServerThatDoesNotTellWhoItIs_LossIsNoticedByTheMarks(t *testing.T) {
	server := testenv.OwnRedis(t)
	ops := admin(t, server.Addr)
	require.NoError(t, ops.Do(t.Context(), "ACL", "SETUSER", "plain", "on", ">pw", "~*", "+@all", "-info").Err())
	s, _ := newStore(t, strings.Replace(server.URL, "redis://", "redis://plain:pw@", 1))
	sc := scope()
	require.False(t, remember(t, s, sc))
	claimed(t, s, key(t, sc, "1"), "me")
	require.NoError(t, ops.FlushAll(t.Context()).Err())
	requireLost(t, s, key(t, sc, "1"))
}

func TestMemory_RedisAway_RememberIsUnavailableAndMayBeCalledAgain(t *testing.T) {
	server := testenv.OwnRedis(t)
	require.NoError(t, server.Stop())
	s, _ := newStore(t, server.URL, quick)
	sc := scope()
	_, err := s.Remember(t.Context(), sc)
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	require.NotErrorIs(t, err, dedupe.ErrOutcomeUnknown)
	require.NoError(t, server.Start())
	eventually(t, "remembered", func() bool { _, err = s.Remember(t.Context(), sc); return err == nil })
	claimed(t, s, key(t, sc, "1"), "me")
}

// Remember writes the marks of a lost memory anew: if it fails halfway, asking again must still tell of the loss.
func TestMemory_RememberFailsHalfway_TheLossIsToldByTheNext(t *testing.T) {
	url, nodes := testenv.OwnRedisCluster(t)
	sc := scope()
	first, _ := newStore(t, url)
	remember(t, first, sc)
	tag := func(n *testenv.Server) bool { // shard 0, which comes first, is on n
		return admin(t, n.Addr).Exists(t.Context(), "idemq:{"+sc+":0}").Val() == 1
	}
	i := slices.IndexFunc(nodes, tag)
	require.NotEqual(t, -1, i)
	flushed, refuses := nodes[(i+1)%3], nodes[(i+2)%3]
	require.NoError(t, admin(t, flushed.Addr).FlushAll(t.Context()).Err())
	require.NoError(t, admin(t, refuses.Addr).Do(t.Context(), "ACL", "SETUSER", "default", "-eval", "-evalsha").Err())

	again, _ := newStore(t, url)
	_, err := again.Remember(t.Context(), sc)
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	require.NoError(t, admin(t, refuses.Addr).Do(t.Context(), "ACL", "SETUSER", "default", "+eval", "+evalsha").Err())
	require.True(t, remember(t, again, sc))
	require.False(t, remember(t, again, sc))
}
