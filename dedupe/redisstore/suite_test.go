package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/storetest"
	"github.com/idemq/idemq/internal/testenv"
)

// suite runs storetest on a server whose clock goes by itself.
type suite struct {
	url string
	rdb redis.UniversalClient // of the last store
}

func (h *suite) Open(t *testing.T) (s dedupe.Store) {
	s, h.rdb = newStore(t, h.url)
	return s
}

func (h *suite) Advance(_ *testing.T, d time.Duration) { time.Sleep(d) } // the server's clock is real

func (h *suite) Flush(t *testing.T, _ dedupe.Store) {
	if cluster, ok := h.rdb.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachMaster(t.Context(), flushDB))
		return
	}
	require.NoError(t, h.rdb.FlushDB(t.Context()).Err())
}

func TestStore_SingleServer_BehavesAsEveryStore(t *testing.T) {
	storetest.Run(t, &suite{url: testenv.Redis(t)})
}

func TestStore_Cluster_BehavesAsEveryStore(t *testing.T) {
	url, _ := testenv.OwnRedisCluster(t) // the suite flushes it
	storetest.Run(t, &suite{url: url})
}

// miniSuite runs storetest on miniredis, whose TTLs and clock are moved by hand.
type miniSuite struct {
	server *miniredis.Miniredis
	now    time.Time
}

func (h *miniSuite) Open(t *testing.T) dedupe.Store {
	s, _ := newStore(t, "redis://"+h.server.Addr())
	return s
}

func (h *miniSuite) Advance(_ *testing.T, d time.Duration) {
	h.now = h.now.Add(d)
	h.server.SetTime(h.now)
	h.server.FastForward(d)
}

func (h *miniSuite) Flush(*testing.T, dedupe.Store) { h.server.FlushAll() }

func TestStore_Miniredis_BehavesAsEveryStore(t *testing.T) {
	h := &miniSuite{server: miniredis.RunT(t), now: time.UnixMilli(1_800_000_000_000)}
	h.server.SetTime(h.now)
	storetest.Run(t, h)
}
