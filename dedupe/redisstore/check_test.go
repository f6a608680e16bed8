package redisstore_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/internal/testenv"
)

func env(m dedupe.Mode) dedupe.CheckEnv {
	return dedupe.CheckEnv{Scope: "check", Mode: m, Lease: 3 * time.Minute, Retention: retention}
}

// found is refuse or warn by code.
func found(t testing.TB, s dedupe.Store, m dedupe.Mode) map[string]string {
	t.Helper()
	return foundIn(t, s, env(m))
}

func foundIn(t testing.TB, s dedupe.Store, e dedupe.CheckEnv) map[string]string {
	t.Helper()
	findings, err := s.Check(t.Context(), e)
	require.NoError(t, err)
	codes := map[string]string{}
	for _, f := range findings {
		require.NotEmpty(t, f.What)
		require.NotEmpty(t, f.Remedy)
		codes[f.Code] = "warn"
		if f.Refuse {
			codes[f.Code] = "refuse"
		}
	}
	return codes
}

func TestCheck_GoodServerAndClient_FindsNothing(t *testing.T) {
	s, _ := newStore(t, testenv.OwnRedis(t, "appendonly yes").URL)
	for _, m := range []dedupe.Mode{dedupe.Transactional, dedupe.Logged, dedupe.RedisOnly} {
		require.Empty(t, found(t, s, m))
	}
}

// Evicted leases (asynq #799): each of the policies but noeviction removed claims without a word.
func TestCheck_EvictingServer_WarnsWithALogAndRefusesWithout(t *testing.T) {
	server := testenv.OwnRedis(t, "appendonly yes")
	s, _ := newStore(t, server.URL)
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"} {
		require.NoError(t, admin(t, server.Addr).ConfigSet(t.Context(), "maxmemory-policy", policy).Err())
		require.Equal(t, map[string]string{"redis-evicts": "warn"}, found(t, s, dedupe.Transactional))
		require.Equal(t, map[string]string{"redis-evicts": "refuse"}, found(t, s, dedupe.RedisOnly))
	}
}

func TestCheck_NoPersistence_WarnsInRedisOnly(t *testing.T) {
	s, _ := newStore(t, testenv.OwnRedis(t).URL)
	require.Empty(t, found(t, s, dedupe.Logged))
	require.Equal(t, map[string]string{"redis-not-persistent": "warn"}, found(t, s, dedupe.RedisOnly))
}

func TestCheck_Replica_WarnsWithALogAndRefusesWithout(t *testing.T) {
	replica := testenv.OwnRedisReplica(t, testenv.OwnRedis(t), "appendonly yes")
	s, _ := newStore(t, replica.URL)
	require.Equal(t, map[string]string{"redis-read-only": "warn"}, found(t, s, dedupe.Transactional))
	require.Equal(t, map[string]string{"redis-read-only": "refuse"}, found(t, s, dedupe.RedisOnly))
}

func TestCheck_ConfigNotPermitted_WarnsThatItIsUnknown(t *testing.T) {
	server := testenv.OwnRedis(t)
	require.NoError(t, admin(t, server.Addr).Do(t.Context(), "ACL", "SETUSER", "app", "on", ">pw", "~idemq:*", "+@all", "-@admin").Err())
	s, _ := newStore(t, strings.Replace(server.URL, "redis://", "redis://app:pw@", 1))
	require.Equal(t, map[string]string{"redis-settings-unknown": "warn"}, found(t, s, dedupe.RedisOnly))
}

func TestCheck_Miniredis_WarnsOnlyOfWhatItDoesNotKnow(t *testing.T) {
	s, _ := newStore(t, "redis://"+miniredis.RunT(t).Addr())
	require.Equal(t, map[string]string{"redis-settings-unknown": "warn"}, found(t, s, dedupe.Transactional))
}

func TestCheck_RedisRefusesUs_IsNoOutageAndNamesTheRemedy(t *testing.T) {
	server := testenv.OwnRedis(t, "requirepass secret-one")
	ops := redis.NewClient(&redis.Options{Addr: server.Addr, Password: "secret-one"})
	t.Cleanup(func() { ops.Close() })
	for user, rules := range map[string][]any{
		"noscripts": {"~idemq:*", "+@all", "-@scripting"},
		"nokeys":    {"~other:*", "+@all"},
		"nowrites":  {"~idemq:*", "+@all", "-@write"},
	} {
		require.NoError(t, ops.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">pw"}, rules...)...).Err())
	}
	for name, c := range map[string]struct{ user, code string }{
		"no password":        {"", "NOAUTH"},
		"wrong password":     {":secret-two@", "WRONGPASS"},
		"unknown user":       {"nobody:secret-two@", "WRONGPASS"},
		"no scripts allowed": {"noscripts:pw@", "NOPERM"},
		"other keys allowed": {"nokeys:pw@", "NOPERM"},
		"no writes allowed":  {"nowrites:pw@", "NOPERM"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t, strings.Replace(server.URL, "redis://", "redis://"+c.user, 1))
			_, err := s.Check(t.Context(), env(dedupe.Logged))
			require.ErrorContains(t, err, c.code)
			require.ErrorContains(t, err, "set user and password")
			require.False(t, dedupe.IsOutage(err), err)
			require.NotContains(t, err.Error(), "secret")

			// A message that meets it was surely not claimed, and the log is asked.
			r := claim(t, s, key(t, "check", "1"), "me")
			require.ErrorIs(t, r.Err, dedupe.ErrUnavailable)
			require.ErrorContains(t, r.Err, "redis refuses us ("+c.code+")")
			require.NotContains(t, r.Err.Error(), "secret")
		})
	}
}

// The lease is at least three times the timeout of a call (DECISIONS.md, 18).
func TestCheck_ShortLeaseOrRetention_IsRefused(t *testing.T) {
	s, _ := newStore(t, testenv.OwnRedis(t, "appendonly yes").URL) // timeout 1 min
	e := env(dedupe.Logged)
	e.Lease -= time.Millisecond
	require.Equal(t, map[string]string{"redis-lease-short": "refuse"}, foundIn(t, s, e))
	e = env(dedupe.Logged)
	e.Retention = e.Lease - 1
	require.Equal(t, map[string]string{"redis-retention-short": "refuse"}, foundIn(t, s, e))
}

// Defaults of go-redis hide an outage.
func TestCheck_ClientOptionsThatHideAnOutage_AreNamed(t *testing.T) {
	server := testenv.OwnRedis(t, "appendonly yes")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { rdb.Close() })
	s := redisstore.New(rdb, redisstore.Config{})
	findings, err := s.Check(t.Context(), env(dedupe.RedisOnly))
	require.NoError(t, err)
	require.Len(t, findings, 5)
	for i, option := range []string{"MaxRetries is 3", "DialerRetries is 5", "ContextTimeoutEnabled is false", "DisableIdentity is false", "MaintNotificationsConfig is on"} {
		require.Contains(t, findings[i].What, option)
		require.Equal(t, "redis-client-option", findings[i].Code)
		require.False(t, findings[i].Refuse)
	}
}

func TestCheck_ClientsThatDoNotFit(t *testing.T) {
	url, nodes := testenv.OwnRedisCluster(t)
	cluster, _ := newStore(t, url)
	require.Equal(t, map[string]string{"redis-not-persistent": "warn"}, found(t, cluster, dedupe.RedisOnly))
	for _, n := range nodes {
		require.NoError(t, admin(t, n.Addr).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lfu").Err())
	}
	findings, err := cluster.Check(t.Context(), env(dedupe.Logged))
	require.NoError(t, err)
	require.Len(t, findings, 3, "every master is asked, and named")
	require.Contains(t, findings[0].What, "127.0.0.1:")

	// One key in three is on this node: Check must not depend on which.
	single, _ := newStore(t, nodes[0].URL)
	findings, err = single.Check(t.Context(), env(dedupe.Logged))
	if err == nil {
		require.Contains(t, findings[0].What, "node of a cluster")
	} else {
		require.ErrorContains(t, err, "MOVED")
	}

	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": testenv.OwnRedis(t, "appendonly yes").Addr}, TLSConfig: (*tls.Config)(nil)})
	t.Cleanup(func() { ring.Close() })
	require.Equal(t, "refuse", found(t, redisstore.New(ring, redisstore.Config{}), dedupe.Logged)["redis-client-kind"])
}

func TestCheck_ServerAway_NamesItsAddressAndNoPassword(t *testing.T) {
	server := testenv.OwnRedis(t)
	require.NoError(t, server.Stop())
	s, _ := newStore(t, "redis://ann:secret@"+server.Addr)
	_, err := s.Check(t.Context(), dedupe.CheckEnv{Scope: scope(), Mode: dedupe.Logged, Lease: lease, Retention: retention})
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	require.ErrorContains(t, err, "redisstore: check "+server.Addr+": store unavailable: ")
	require.NotContains(t, err.Error(), "secret")
}
