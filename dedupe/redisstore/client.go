package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// NewClient makes a client whose options do not hide an outage, and dials nothing yet. It is the caller's to close.
//
//	redis://[USER:PASSWORD@]HOST[:PORT][/DB]                               a single server
//	redis+cluster://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]               a cluster, found through any of its nodes
//	redis+sentinel://[USER:PASSWORD@]HOST:PORT[,HOST:PORT...]/MASTER[/DB]  the master called MASTER, found through its sentinels
//
// rediss instead of redis is TLS. Options of go-redis may follow as a query, such as ?read_timeout=2s&pool_size=50; for the sentinels
// themselves sentinel_username and sentinel_password. Special characters in user and password are escaped as %XX.
//
// What is set whatever the URL says: no retries, since a dead server would cost seconds where the log could have been asked (max_retries
// -1, dialer_retries 1), the end of a context ends a call, and no handshakes that older servers answer with errors. Timeouts that the
// URL does not give are one second. Errors never hold the URL or a password.
func NewClient(rawURL string) (redis.UniversalClient, error) {
	scheme, rest, found := strings.Cut(rawURL, "://")
	if !found {
		return nil, errors.New("redisstore: client URL: no scheme; begin it with redis://, rediss://, redis+cluster:// or redis+sentinel://")
	}
	kind, topology, _ := strings.Cut(scheme, "+")
	if kind != "redis" && kind != "rediss" || strings.Contains(scheme, "+") && topology != "cluster" && topology != "sentinel" {
		return nil, fmt.Errorf("redisstore: client URL: scheme %q: use redis, rediss, redis+cluster, rediss+cluster, redis+sentinel or rediss+sentinel", scheme)
	}
	t, err := parseTarget(rest)
	if err != nil {
		return nil, err
	}
	switch topology {
	case "cluster":
		return t.cluster(kind)
	case "sentinel":
		return t.sentinel(kind)
	default:
		return t.single(kind)
	}
}

// target is a URL behind its scheme, with the user taken out, so that what is left may be in errors.
type target struct {
	user, password string
	hosts          []string
	path           string
	query          url.Values
}

func parseTarget(rest string) (target, error) {
	var t target
	authority := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, password, _ := strings.Cut(authority[:i], ":")
		var err, err2 error
		t.user, err = url.PathUnescape(user)
		t.password, err2 = url.PathUnescape(password)
		if err != nil || err2 != nil {
			return t, errors.New("redisstore: client URL: user or password: a % that is no %XX; write % itself as %25")
		}
		authority = authority[i+1:]
	}
	for host := range strings.SplitSeq(authority, ",") {
		// A password with a slash in it ends up here, and must not be shown.
		u, err := url.Parse("redis://" + host)
		if err != nil || u.Host == "" || strings.Contains(host, "@") || strings.Contains(host, ":") && u.Port() == "" || strings.Contains(u.Hostname(), ":") && host[0] != '[' {
			return t, errors.New("redisstore: client URL: a host is not HOST:PORT; special characters in user and password are escaped as %XX, / as %2F")
		}
		t.hosts = append(t.hosts, host)
	}
	if strings.Contains(rest, "@") {
		return t, errors.New("redisstore: client URL: an @ behind the hosts; special characters in user and password are escaped as %XX, / as %2F")
	}
	u, err := url.Parse(rest)
	if err != nil {
		return t, errors.New("redisstore: client URL: path or query cannot be read; special characters are escaped as %XX")
	}
	t.path = u.Path
	if t.query, err = url.ParseQuery(u.RawQuery); err != nil {
		return t, errors.New("redisstore: client URL: the query cannot be read; special characters are escaped as %XX")
	}
	return t, nil
}

// plain is a URL that go-redis reads. It holds no password.
func (t target) plain(kind, path string) string {
	u := url.URL{Scheme: kind, Host: t.hosts[0], Path: path}
	for _, more := range t.hosts[1:] {
		t.query.Add("addr", more)
	}
	u.RawQuery = t.query.Encode()
	return u.String()
}

// secret takes a query value that must not be in errors.
func (t target) secret(name string) string {
	v := t.query.Get(name)
	t.query.Del(name)
	return v
}

func (t target) single(kind string) (redis.UniversalClient, error) {
	if len(t.hosts) > 1 {
		return nil, fmt.Errorf("redisstore: client URL: %d hosts: use %s+cluster:// or %s+sentinel://", len(t.hosts), kind, kind)
	}
	o, err := redis.ParseURL(t.plain(kind, t.path))
	if err != nil {
		return nil, fmt.Errorf("redisstore: client URL: %w", err)
	}
	o.Username, o.Password = t.user, t.password
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	o.MaintNotificationsConfig = noMaintenance()
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return redis.NewClient(o), nil
}

func (t target) cluster(kind string) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(t.plain(kind, t.path))
	if err != nil {
		return nil, fmt.Errorf("redisstore: client URL: %w", err)
	}
	o.Username, o.Password = t.user, t.password
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	o.MaintNotificationsConfig = noMaintenance()
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return redis.NewClusterClient(o), nil
}

func (t target) sentinel(kind string) (redis.UniversalClient, error) {
	master, db, _ := strings.Cut(strings.Trim(t.path, "/"), "/")
	if master == "" {
		return nil, errors.New("redisstore: client URL: no master; name it behind the sentinels, as in redis+sentinel://host:26379/mymaster")
	}
	user, password := t.secret("sentinel_username"), t.secret("sentinel_password")
	o, err := redis.ParseFailoverURL(t.plain(kind, "/"+cmp.Or(db, "0")))
	if err != nil {
		return nil, fmt.Errorf("redisstore: client URL: %w", err)
	}
	o.MasterName = master
	o.Username, o.Password = t.user, t.password
	o.SentinelUsername, o.SentinelPassword = user, password
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity = -1, 1, true, true
	bound(&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout)
	return redis.NewFailoverClient(o), nil
}

func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// bound gives timeouts that the URL does not set; go-redis waits 5 s for each by default, and 30 s for the pool.
func bound(timeouts ...*time.Duration) {
	for _, t := range timeouts {
		if *t == 0 {
			*t = time.Second
		}
	}
}
