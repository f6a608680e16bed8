package redisstore_test

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // most of what is tested here is worth a warning
	redis.SetLogger(clientLog{slog.Default()})
	// A Redis that tests share runs as long as the test process.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/idemq/idemq/internal/testenv.(*Server).Start.func1"))
}

// newStore returns a Store with its own client, and the client. Its timeouts are long: two cores may be shared by many, and a test that
// is about a timeout sets its own.
func newStore(t testing.TB, url string, change ...func(*redisstore.Config)) (*redisstore.Store, redis.UniversalClient) {
	t.Helper()
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	rdb, err := redisstore.NewClient(url + sep + "dial_timeout=60s&read_timeout=60s&write_timeout=60s&pool_timeout=60s")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	cfg := redisstore.Config{Timeout: time.Minute}
	for _, f := range change {
		f(&cfg)
	}
	s := redisstore.New(rdb, cfg)
	require.NoError(t, s.Validate())
	return s, rdb
}

// admin is a client for what a test does to a server.
func admin(t testing.TB, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, DisableIdentity: true})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

func flushDB(ctx context.Context, rdb *redis.Client) error { return rdb.FlushDB(ctx).Err() }

// scope is a name that no other test uses: cluster tests may share a server.
func scope() string { return "t." + rand.Text() }

func key(t testing.TB, scope, id string) dedupe.Key {
	t.Helper()
	k, err := dedupe.NewKey(scope, "orders", id)
	require.NoError(t, err)
	return k
}

const (
	lease     = 10 * time.Minute
	retention = time.Hour
)

func claimOf(k dedupe.Key, o dedupe.Owner) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{Key: k, Owner: o, Fingerprint: dedupe.NoFingerprint, Lease: lease, Retention: retention}
}

func grip(k dedupe.Key, o dedupe.Owner) dedupe.Grip { return dedupe.Grip{Key: k, Owner: o} }

func claim(t testing.TB, s dedupe.Store, k dedupe.Key, o dedupe.Owner) dedupe.Reply {
	t.Helper()
	return s.Claim(t.Context(), []dedupe.ClaimRequest{claimOf(k, o)})[0]
}

func claimed(t testing.TB, s dedupe.Store, k dedupe.Key, o dedupe.Owner) dedupe.Record {
	t.Helper()
	r := claim(t, s, k, o)
	require.NoError(t, r.Err)
	require.Equal(t, dedupe.Claimed, r.Verdict)
	return r.Record
}

func done(t testing.TB, s dedupe.Store, k dedupe.Key, o dedupe.Owner) {
	t.Helper()
	claimed(t, s, k, o)
	r := s.Complete(t.Context(), []dedupe.CompleteRequest{{Grip: grip(k, o), Retention: retention, Result: []byte("result")}})[0]
	require.NoError(t, r.Err)
}

func inspect(t testing.TB, s dedupe.Store, k dedupe.Key) dedupe.Record {
	t.Helper()
	recs, err := s.Inspect(t.Context(), []dedupe.Key{k})
	require.NoError(t, err)
	return recs[0]
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 2*time.Minute, 10*time.Millisecond, what)
}

// proxy stands between a client and a server.
type proxy struct {
	url       string
	dropping  atomic.Bool // replies are swallowed and the connection is cut: the server has done what it was asked
	replyCuts atomic.Int32

	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
}

func newProxy(t testing.TB, serverURL string) *proxy {
	t.Helper()
	u, err := url.Parse(serverURL)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{url: strings.Replace(serverURL, u.Host, l.Addr().String(), 1), listener: l, open: map[net.Conn]bool{}}
	p.wg.Go(func() { p.accept(u.Host) })
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept(server string) {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", server)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.open[c], p.open[s] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { io.Copy(s, c); s.Close() })
		p.wg.Go(func() { p.answers(c, s) })
	}
}

func (p *proxy) answers(c, s net.Conn) {
	defer c.Close()
	defer s.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		if err != nil {
			return
		}
		if p.dropping.Load() {
			p.replyCuts.Add(1)
			return
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		c.Close()
	}
	clear(p.open)
}

// redisKeyOf is the one key of k's namespace and id, found as people find it.
func redisKeyOf(t testing.TB, s dedupe.Store, rdb redis.UniversalClient, k dedupe.Key) string {
	t.Helper()
	claim(t, s, k, "x")
	var found []string
	for _, name := range rdb.Keys(t.Context(), "*"+k.Scope()+":*").Val() {
		if strings.HasSuffix(name, "}:6:"+k.Namespace()+":"+k.ID()) {
			found = append(found, name)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

func ttls(t testing.TB, rdb redis.UniversalClient, scope string) (all []time.Duration) {
	t.Helper()
	for _, name := range rdb.Keys(t.Context(), "*"+scope+":*").Val() {
		all = append(all, rdb.PTTL(t.Context(), name).Val())
	}
	return all
}
