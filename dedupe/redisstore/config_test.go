package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
)

func TestValidate_ListsEveryProblemAtOnce(t *testing.T) {
	s := redisstore.New(nil, redisstore.Config{
		Prefix: "a{b}", Shards: -1, Timeout: time.Microsecond, Breaker: redisstore.Breaker{Failures: -2, Probe: -time.Second},
	})
	require.EqualError(t, s.Validate(), `redisstore: Config.Prefix: "a{b}": use 1 to 64 letters, digits, dots, underscores, colons and hyphens
redisstore: Config.Shards: -1: from 1 to 1024
redisstore: Config.Breaker.Failures: -2: from 1 to 1000000
redisstore: Config.Timeout: 1µs: at least 1ms
redisstore: Config.Breaker.Probe: -1s: at least 1ms
redisstore: New: client is nil; make one with NewClient(url)`)

	// Used all the same, it does nothing, and says why.
	r := claim(t, s, key(t, "x", "1"), "me")
	require.ErrorContains(t, r.Err, "Config.Shards")
	require.False(t, dedupe.IsOutage(r.Err))
	_, err := s.Inspect(t.Context(), []dedupe.Key{key(t, "x", "1")})
	require.ErrorContains(t, err, "Config.Shards")
	_, err = s.Remember(t.Context(), "x")
	require.ErrorContains(t, err, "Config.Shards")
	_, err = s.Check(t.Context(), dedupe.CheckEnv{})
	require.ErrorContains(t, err, "Config.Shards")
}

func TestValidate_IsPartOfGuardsConfig(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { rdb.Close() })
	_, err := dedupe.New(dedupe.Config{Scope: "x", Mode: dedupe.RedisOnly, Store: redisstore.New(rdb, redisstore.Config{Shards: 5000})})
	require.ErrorContains(t, err, "redisstore: Config.Shards: 5000: from 1 to 1024")
	require.NoError(t, redisstore.New(rdb, redisstore.Config{}).Validate())
}
