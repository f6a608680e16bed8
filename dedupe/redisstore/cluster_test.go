package redisstore_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/internal/testenv"
)

// Two keys of one script in two slots are an error that miniredis does not find (its KEYSLOT is constant), so this runs on a cluster.
func TestCluster_BatchOverAllShards_ColdOnEveryNode_IsAnsweredOneForOne(t *testing.T) {
	url, nodes := testenv.OwnRedisCluster(t)
	s, _ := newStore(t, url)
	sc := scope()
	remember(t, s, sc) // claims have the mark of their shard as second key
	for _, node := range nodes {
		require.NoError(t, admin(t, node.Addr).ScriptFlush(t.Context()).Err())
	}
	var reqs []dedupe.ClaimRequest
	for i := range 200 {
		reqs = append(reqs, claimOf(key(t, sc, fmt.Sprint(i)), dedupe.Owner(fmt.Sprint("owner ", i))))
	}
	for i, r := range s.Claim(t.Context(), reqs) {
		require.NoError(t, r.Err)
		require.Equal(t, reqs[i].Key, r.Record.Key)
		require.Equal(t, reqs[i].Owner, r.Record.Owner)
	}
	for _, node := range nodes {
		size := admin(t, node.Addr).DBSize(t.Context()).Val()
		require.Greater(t, size, int64(20), "a scope is spread over the masters")
	}
}

func TestCluster_OneDeadMaster_CostsItsOwnKeysOnly(t *testing.T) {
	url, nodes := testenv.OwnRedisCluster(t)
	for _, node := range nodes { // else the others refuse as well: CLUSTERDOWN
		require.NoError(t, admin(t, node.Addr).ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	s, _ := newStore(t, url, func(c *redisstore.Config) {
		c.Timeout, c.Breaker.Probe, c.Breaker.Failures = short, 50*time.Millisecond, 3
	})
	sc := scope()
	ask := func() (dead, alive int, open bool) {
		var reqs []dedupe.ClaimRequest
		for i := range 100 {
			reqs = append(reqs, claimOf(key(t, sc, fmt.Sprint(i)), "me"))
		}
		for _, r := range s.Claim(t.Context(), reqs) {
			if r.Err == nil {
				alive++
				continue
			}
			require.True(t, dedupe.IsOutage(r.Err), r.Err)
			dead++
			open = open || strings.Contains(r.Err.Error(), "breaker is open")
		}
		return dead, alive, open
	}
	eventually(t, "all are answered", func() bool { dead, _, _ := ask(); return dead == 0 })
	require.NoError(t, nodes[0].Pause())
	t.Cleanup(func() { require.NoError(t, nodes[0].Resume()) })
	eventually(t, "the dead master's breaker opens, the others answer, and nobody waits for the dead one", func() bool {
		start := time.Now()
		dead, alive, open := ask()
		return open && dead > 0 && alive > 30 && time.Since(start) < short
	})
}

func TestCluster_Away_IsUnavailableAtOnceAndComesBack(t *testing.T) {
	url, nodes := testenv.OwnRedisCluster(t)
	s, _ := newStore(t, url, quick)
	sc := scope()
	claimed(t, s, key(t, sc, "1"), "me")
	for _, node := range nodes {
		require.NoError(t, node.Kill())
	}
	fresh, _ := newStore(t, url, quick) // has never seen the cluster
	for _, s := range []*redisstore.Store{s, fresh} {
		for range 10 {
			require.True(t, dedupe.IsOutage(claim(t, s, key(t, sc, "1"), "me").Err))
		}
		start := time.Now()
		require.ErrorIs(t, claim(t, s, key(t, sc, "1"), "me").Err, dedupe.ErrUnavailable)
		require.Less(t, time.Since(start), 10*time.Second, "no timeout is waited for")
	}
	for _, node := range nodes {
		require.NoError(t, node.Start())
	}
	for _, s := range []*redisstore.Store{s, fresh} {
		eventually(t, "the cluster is back", func() bool { return claim(t, s, key(t, sc, "1"), "me").Err == nil })
	}
}

// PROTOCOL.md, 8: TRYAGAIN, MOVED and ASK under a second are retried. While a slot moves, a claim has its mark on one node and its key
// on none, which is TRYAGAIN until the mark has moved too.
func TestCluster_SlotMovesWhileClaimed_NoClaimIsLostOrWonTwice(t *testing.T) {
	url, nodes := testenv.OwnRedisCluster(t)
	s, rdb := newStore(t, url, func(c *redisstore.Config) { c.Shards, c.RetryFor = 1, 20*time.Second })
	noRetry, _ := newStore(t, url, func(c *redisstore.Config) { c.Shards, c.RetryFor = 1, -1 })
	sc := scope()
	remember(t, s, sc)
	remember(t, noRetry, sc)
	before := key(t, sc, "before")
	fence := claimed(t, s, before, "me").Fence
	m := newMove(t, rdb.(*redis.ClusterClient), nodes, redisKeyOf(t, s, admin(t, ownerOf(t, rdb, sc)), before))

	m.begin(t)
	require.Equal(t, fence, claimed(t, s, before, "me").Fence, "what has not moved is answered where it is")
	r := claim(t, noRetry, key(t, sc, "not retried"), "me")
	require.ErrorIs(t, r.Err, dedupe.ErrUnavailable)
	require.ErrorContains(t, r.Err, "TRYAGAIN")
	during := make(chan dedupe.Reply)
	go func() { during <- s.Claim(t.Context(), []dedupe.ClaimRequest{claimOf(key(t, sc, "during"), "me")})[0] }()
	m.keys(t)
	m.end(t)
	got := <-during
	require.False(t, dedupe.IsOutage(got.Err), got.Err)

	// All of the scope is on another server now: RedisOnly cannot tell that from a loss, and says so; what it accepts is all there.
	eventually(t, "the new master is noticed", func() bool {
		r := claim(t, s, before, "me")
		return r.Err != nil && !dedupe.IsOutage(r.Err)
	})
	requireLost(t, s, before)
	require.True(t, remember(t, s, sc))
	require.Equal(t, fence, claimed(t, s, before, "me").Fence)
	require.Equal(t, dedupe.Busy, claim(t, s, key(t, sc, "during"), "other").Verdict)
}

// ASK: with a log there is no mark, so new keys of a moving slot are sent on to where it moves.
func TestCluster_SlotMoves_WithALog_IsFollowed(t *testing.T) {
	url, nodes := testenv.OwnRedisCluster(t)
	s, rdb := newStore(t, url, func(c *redisstore.Config) { c.Shards = 1 })
	sc := scope()
	before := key(t, sc, "before")
	fence := claimed(t, s, before, "me").Fence
	m := newMove(t, rdb.(*redis.ClusterClient), nodes, redisKeyOf(t, s, admin(t, ownerOf(t, rdb, sc)), before))
	m.begin(t)
	claimed(t, s, key(t, sc, "during"), "me")
	require.Equal(t, fence, claimed(t, s, before, "me").Fence)
	m.keys(t)
	m.end(t)
	for range 3 {
		require.Equal(t, fence, claimed(t, s, before, "me").Fence)
		require.Equal(t, dedupe.Busy, claim(t, s, key(t, sc, "during"), "other").Verdict)
	}
}

// ownerOf is the master of the only shard of sc.
func ownerOf(t testing.TB, rdb redis.UniversalClient, sc string) string {
	t.Helper()
	c, err := rdb.(*redis.ClusterClient).MasterForKey(t.Context(), "idemq:{"+sc+":0}")
	require.NoError(t, err)
	return c.Options().Addr
}

// move moves the slot of a key to another master, in the steps that redis-cli --cluster reshard takes.
type move struct {
	slot     string
	from, to *redis.Client
	all      []*redis.Client
}

func newMove(t testing.TB, rdb *redis.ClusterClient, nodes []*testenv.Server, redisKey string) *move {
	t.Helper()
	m := &move{slot: strconv.FormatInt(rdb.ClusterKeySlot(t.Context(), redisKey).Val(), 10)}
	owner, err := rdb.MasterForKey(t.Context(), redisKey)
	require.NoError(t, err)
	for _, node := range nodes {
		c := admin(t, node.Addr)
		m.all = append(m.all, c)
		if node.Addr == owner.Options().Addr {
			m.from = c
		} else {
			m.to = c
		}
	}
	return m
}

func (m *move) begin(t testing.TB) {
	t.Helper()
	from, to := m.from.ClusterMyID(t.Context()).Val(), m.to.ClusterMyID(t.Context()).Val()
	require.NoError(t, m.to.Do(t.Context(), "CLUSTER", "SETSLOT", m.slot, "IMPORTING", from).Err())
	require.NoError(t, m.from.Do(t.Context(), "CLUSTER", "SETSLOT", m.slot, "MIGRATING", to).Err())
}

func (m *move) keys(t testing.TB) {
	t.Helper()
	slot, err := strconv.Atoi(m.slot)
	require.NoError(t, err)
	names := m.from.ClusterGetKeysInSlot(t.Context(), slot, 1000).Val()
	slices.Sort(names)
	host, port, _ := strings.Cut(m.to.Options().Addr, ":")
	args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
	for _, n := range names {
		args = append(args, n)
	}
	require.NoError(t, m.from.Do(t.Context(), args...).Err())
}

func (m *move) end(t testing.TB) {
	t.Helper()
	to := m.to.ClusterMyID(t.Context()).Val()
	for _, c := range slices.Concat([]*redis.Client{m.to, m.from}, m.all) {
		require.NoError(t, c.Do(t.Context(), "CLUSTER", "SETSLOT", m.slot, "NODE", to).Err())
	}
}

func TestCluster_OneMasterLosesItsMemory_IsALossForItsShards(t *testing.T) {
	url, nodes := testenv.OwnRedisCluster(t)
	s, _ := newStore(t, url)
	sc := scope()
	remember(t, s, sc)
	require.NoError(t, admin(t, nodes[1].Addr).FlushAll(t.Context()).Err())
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
	require.True(t, remember(t, s, sc), "some marks were there")
	for i := range 100 {
		claimed(t, s, key(t, sc, fmt.Sprint(i)), "me")
	}
}
