package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/idemq/idemq/dedupe"
)

// The closed set of codes of Check's findings.
const (
	codeLease      = "redis-lease-short"      // the lease is under three call timeouts
	codeRetention  = "redis-retention-short"  // the retention is under the lease
	codeClient     = "redis-client-option"    // an option of the client hides an outage
	codeClientKind = "redis-client-kind"      // a client that does not fit the server, or the purpose
	codeEvicts     = "redis-evicts"           // maxmemory-policy removes keys
	codeVolatile   = "redis-not-persistent"   // RedisOnly: a restart forgets everything
	codeReadOnly   = "redis-read-only"        // the server is a replica
	codeUnknown    = "redis-settings-unknown" // CONFIG GET is not permitted
	codeNoIdentity = "redis-identity-unknown" // RedisOnly: INFO does not say which server it is
)

// timeoutsPerLease is how many calls may time out before a lease is lost.
const timeoutsPerLease = 3

// Check implements dedupe.Store. It asks every master for its settings, and tries a script that writes nothing. The error is
// ErrUnavailable if a server is away, and any other error if it refuses us, with the remedy.
func (s *Store) Check(ctx context.Context, env dedupe.CheckEnv) ([]dedupe.Finding, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	findings := append(s.checkTimes(env), checkClient(s.rdb)...)
	var mu sync.Mutex
	err := s.eachMaster(ctx, func(ctx context.Context, addr string, client commands) error {
		found, err := checkServer(ctx, addr, client, env.Mode, s.nodes.cluster != nil)
		mu.Lock()
		defer mu.Unlock()
		findings = append(findings, found...)
		return err
	})
	if err == nil && !slices.ContainsFunc(findings, func(f dedupe.Finding) bool { return f.Code == codeReadOnly }) {
		err = s.tryScript(ctx, env.Scope)
	}
	if err != nil {
		return nil, opError("check", addrOf(s.rdb), checkError(err))
	}
	return findings, nil
}

// checkError tells a server that is away from one that refuses us. err is of the client or classified already.
func checkError(err error) error {
	var refused *refusedError
	switch {
	case errors.As(err, &refused):
		return refused
	case slices.Contains(refusing, codeOf(err)):
		return &refusedError{err}
	case dedupe.IsOutage(err):
		return readOnly(err)
	}
	return readOnly(classify(err))
}

func (s *Store) checkTimes(env dedupe.CheckEnv) (findings []dedupe.Finding) {
	if least := timeoutsPerLease * s.cfg.Timeout; env.Lease < least {
		findings = append(findings, dedupe.Finding{
			Refuse: true, Code: codeLease,
			What:   fmt.Sprintf("lease %v is less than three times the store's timeout %v: two slow renewals would lose it", env.Lease, s.cfg.Timeout),
			Remedy: fmt.Sprintf("set Config.Lease of the guard to at least %v, or redisstore.Config.Timeout to at most %v", least, env.Lease/timeoutsPerLease),
		})
	}
	if env.Retention < env.Lease {
		findings = append(findings, dedupe.Finding{
			Refuse: true, Code: codeRetention,
			What:   fmt.Sprintf("retention %v is less than the lease %v", env.Retention, env.Lease),
			Remedy: "set Config.Retention of the guard to longer than the broker can deliver a message again",
		})
	}
	return findings
}

// checkClient looks for options of go-redis that make a message wait for a Redis that is away.
func checkClient(rdb redis.UniversalClient) (findings []dedupe.Finding) {
	option := func(bad bool, what, remedy string) {
		if bad {
			findings = append(findings, dedupe.Finding{Code: codeClient, What: what, Remedy: remedy + ", or use redisstore.NewClient"})
		}
	}
	common := func(maxRetries, dialerRetries int, contexts, noIdentity bool, maintenance *maintnotifications.Config) {
		option(maxRetries > 0, fmt.Sprintf("MaxRetries is %d: a dead server is tried again and again before anybody is told", maxRetries), "set it to -1")
		option(dialerRetries > 1, fmt.Sprintf("DialerRetries is %d: a refused connection is dialed again, 100 ms apart", dialerRetries), "set it to 1")
		option(!contexts, "ContextTimeoutEnabled is false: a call goes on after its context ended", "set it to true")
		option(!noIdentity, "DisableIdentity is false: each connection sends commands that older servers answer with errors", "set it to true")
		option(maintenance == nil || maintenance.Mode != maintnotifications.ModeDisabled,
			"MaintNotificationsConfig is on: each connection sends a command that servers other than Redis Enterprise answer with an error",
			"set its Mode to maintnotifications.ModeDisabled")
	}
	switch c := rdb.(type) {
	case *redis.Client:
		o := c.Options()
		common(o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity, o.MaintNotificationsConfig)
	case *redis.ClusterClient:
		o := c.Options()
		common(o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled, o.DisableIdentity, o.MaintNotificationsConfig)
	case *redis.Ring:
		findings = append(findings, dedupe.Finding{
			Refuse: true, Code: codeClientKind,
			What:   "a redis.Ring moves keys to other servers when one is away: claims would be made twice",
			Remedy: "use a cluster, Sentinel or a single server",
		})
	default:
		findings = append(findings, dedupe.Finding{
			Code: codeClientKind, What: fmt.Sprintf("client is a %T, whose options cannot be read", rdb),
			Remedy: "hand in a *redis.Client or a *redis.ClusterClient, as redisstore.NewClient makes them",
		})
	}
	return findings
}

// checkServer looks at one server. An error is the client's, as it is.
func checkServer(ctx context.Context, addr string, client commands, mode dedupe.Mode, cluster bool) (findings []dedupe.Finding, err error) {
	authority := mode == dedupe.RedisOnly
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, err
	}
	replication, err := client.Info(ctx, "replication").Result()
	if !answered(err) {
		return nil, err
	}
	if infoField(replication, "role") == "slave" {
		findings = append(findings, dedupe.Finding{
			Refuse: authority, Code: codeReadOnly, What: "redis" + addr + " is a replica, which refuses every write", Remedy: "connect to the master; with replicas, use a redis+sentinel:// or redis+cluster:// URL",
		})
	}
	if authority && infoField(replication, "master_replid") == "" {
		findings = append(findings, dedupe.Finding{
			Code: codeNoIdentity, What: "INFO replication of redis" + addr + " does not tell master_replid: a failover that loses writes would not be noticed",
			Remedy: "allow it (ACL +info)",
		})
	}
	if !cluster {
		info, err := client.Info(ctx, "cluster").Result()
		if !answered(err) {
			return nil, err
		}
		if infoField(info, "cluster_enabled") == "1" {
			findings = append(findings, dedupe.Finding{
				Refuse: authority, Code: codeClientKind, What: "redis" + addr + " is a node of a cluster, and the client is one for a single server: keys of other nodes are refused",
				Remedy: "use a redis+cluster:// URL, or a *redis.ClusterClient",
			})
		}
	}
	settings := map[string]string{}
	for _, name := range []string{"maxmemory-policy", "save", "appendonly"} {
		got, err := client.ConfigGet(ctx, name).Result()
		if !answered(err) {
			return nil, err
		}
		if value, known := got[name]; known && err == nil {
			settings[name] = value
		}
	}
	return append(findings, checkSettings(addr, settings, authority)...), nil
}

func checkSettings(addr string, settings map[string]string, authority bool) (findings []dedupe.Finding) {
	policy, known := settings["maxmemory-policy"]
	if !known {
		return []dedupe.Finding{{
			Code: codeUnknown, What: "CONFIG GET of redis" + addr + " is not permitted: eviction and persistence are unknown",
			Remedy: "allow it (ACL +config|get), or make sure of maxmemory-policy noeviction yourself",
		}}
	}
	if policy != "noeviction" {
		findings = append(findings, dedupe.Finding{
			Refuse: authority, Code: codeEvicts,
			What:   "maxmemory-policy of redis" + addr + " is " + policy + ": when memory is full it removes claims and done keys without a word",
			Remedy: "CONFIG SET maxmemory-policy noeviction, or use a server of its own",
		})
	}
	if save, known := settings["save"]; authority && known && save == "" && settings["appendonly"] == "no" {
		findings = append(findings, dedupe.Finding{
			Code: codeVolatile, What: "redis" + addr + " has neither appendonly nor save: a restart forgets every message",
			Remedy: "CONFIG SET appendonly yes",
		})
	}
	return findings
}

// eachMaster calls f for every master, perhaps at the same time; addr is " HOST:PORT" in a cluster, else empty.
func (s *Store) eachMaster(ctx context.Context, f func(ctx context.Context, addr string, client commands) error) error {
	if s.nodes.cluster == nil {
		return f(ctx, "", s.rdb)
	}
	return s.nodes.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		return f(ctx, " "+c.Options().Addr, c)
	})
}

// tryScript removes a key that nobody has, which shows that scripts may be run and may write.
func (s *Store) tryScript(ctx context.Context, scope string) error {
	k, err := dedupe.NewKey(scope, "idemq", "check: nobody's message")
	if err != nil {
		return err
	}
	c := s.newCall(forgetScript, k, nil)
	s.run(ctx, []*call{c})
	return c.err
}
