package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/internal/testenv"
)

func newClient(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	c, err := redisstore.NewClient(url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestNewClient_Single_SetsWhatShowsAnOutage(t *testing.T) {
	c := newClient(t, "redis://us%40er:p%2Fw%3A@example.test:7000/3?pool_size=7&read_timeout=2s&max_retries=9")
	o := c.(*redis.Client).Options()
	require.Equal(t, "example.test:7000", o.Addr)
	require.Equal(t, "us@er", o.Username)
	require.Equal(t, "p/w:", o.Password)
	require.Equal(t, 3, o.DB)
	require.Equal(t, 7, o.PoolSize)
	require.Equal(t, 2*time.Second, o.ReadTimeout)
	require.Equal(t, time.Second, o.DialTimeout)
	require.Equal(t, time.Second, o.PoolTimeout)
	require.Zero(t, o.MaxRetries, "-1 is 0 once the client is made")
	require.Equal(t, 1, o.DialerRetries)
	require.True(t, o.ContextTimeoutEnabled)
	require.True(t, o.DisableIdentity)
	require.Equal(t, maintnotifications.ModeDisabled, o.MaintNotificationsConfig.Mode)
	require.Nil(t, o.TLSConfig)

	require.NotNil(t, newClient(t, "rediss://example.test").(*redis.Client).Options().TLSConfig)
}

func TestNewClient_Cluster(t *testing.T) {
	for _, url := range []string{
		"redis+cluster://user:pw@a.test:7000,b.test:7001,c.test:7002?pool_size=7",
		"rediss+cluster://user:pw@a.test:7000,b.test:7001,c.test:7002?pool_size=7",
	} {
		o := newClient(t, url).(*redis.ClusterClient).Options()
		require.Equal(t, []string{"a.test:7000", "b.test:7001", "c.test:7002"}, o.Addrs)
		require.Equal(t, "user", o.Username)
		require.Equal(t, "pw", o.Password)
		require.Equal(t, 7, o.PoolSize)
		require.Equal(t, -1, o.MaxRetries)
		require.Equal(t, 1, o.DialerRetries)
		require.True(t, o.ContextTimeoutEnabled)
		require.Equal(t, strings.HasPrefix(url, "rediss"), o.TLSConfig != nil)
	}
}

func TestNewClient_Sentinel_FindsTheMaster(t *testing.T) {
	env := testenv.OwnRedisSentinel(t)
	c := newClient(t, strings.Replace(env.URL, "mymaster", "mymaster/2?pool_size=7", 1))
	o := c.(*redis.Client).Options()
	require.Equal(t, 2, o.DB)
	require.Equal(t, 7, o.PoolSize)
	require.Equal(t, 1, o.DialerRetries)
	require.True(t, o.ContextTimeoutEnabled)
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, "v", newClient(t, env.Master.URL+"/2").Get(t.Context(), "k").Val())
	s := redisstore.New(c, redisstore.Config{})
	require.Empty(t, found(t, s, dedupe.Logged), "nothing hides an outage")
}

func TestNewClient_BadURL_SaysWhatIsWrongAndNeverThePassword(t *testing.T) {
	for _, c := range [][2]string{
		{"", "no scheme"},
		{"localhost:6379", "no scheme"},
		{"http://user:hunter2@host", `scheme "http"`},
		{"redis+http://hunter2@host", `scheme "redis+http"`},
		{"redis+://hunter2@host", `scheme "redis+"`},
		{"redis://u:hunter2@", "HOST:PORT"},
		{"redis://u:hunter2@h:port", "HOST:PORT"},
		{"redis://u:hunter2@h:1:2", "HOST:PORT"},
		{"redis://u:hunter2/x@h:1", "escaped as %XX"},
		{"redis://u:hunter2#x@h:1", "escaped as %XX"},
		{"redis://u:hunter2?x@h:1", "escaped as %XX"},
		{"redis://u:100%hunter2@h", "%25"},
		{"redis://u:hunter2@h/db", `invalid database number: "db"`},
		{"redis://u:hunter2@h?colour=blue", "unexpected option: colour"},
		{"redis://u:hunter2@a:1,b:2", "redis+cluster://"},
		{"redis+sentinel://u:hunter2@h:1", "no master"},
		{"redis+sentinel://u:hunter2@h:1/m/db", "invalid database number"},
		{"redis+sentinel://h:1/m?sentinel_password=hunter2&x=%zz", "query"},
		{"redis+sentinel://h:1/m?sentinel_password=hunter2&dial_timeout=soon", "dial_timeout"},
		{"redis+cluster://u:hunter2@a:1,,b:2", "HOST:PORT"},
		{"redis+cluster://u:hunter2@a:1?pool_size=many", "pool_size"},
	} {
		url, says := c[0], c[1]
		client, err := redisstore.NewClient(url)
		require.Nil(t, client, url)
		require.ErrorContains(t, err, "redisstore: client URL: ", url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func FuzzNewClient_NeverShowsThePassword(f *testing.F) {
	for _, s := range []string{"", "@", "/", ":", "?", "#", "%", "%zz", ",", "[", "]", " ", "\x00", "ü", "a@b:c/d?e#f"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, pre, post string) {
		const secret = "S3CRET-S3CRET"
		for _, scheme := range []string{"redis", "redis+cluster", "redis+sentinel"} {
			c, err := redisstore.NewClient(scheme + "://user:" + pre + secret + post + "@host:6379/m")
			if err != nil {
				require.NotContains(t, err.Error(), secret)
			} else {
				require.NoError(t, c.Close())
			}
		}
	})
}
