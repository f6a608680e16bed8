package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/idemq/idemq/dedupe"
)

// node is a server that holds shards: a master of a cluster, or the one server there is.
type node struct {
	client   commands
	breaker  *breaker
	identity identity
}

// commands is what is asked of a server itself, not of its keys.
type commands interface {
	Ping(ctx context.Context) *redis.StatusCmd
	Info(ctx context.Context, sections ...string) *redis.StringCmd
	ConfigGet(ctx context.Context, parameter string) *redis.MapStringStringCmd
	Pipeline() redis.Pipeliner
	PoolStats() *redis.PoolStats
}

// nodes finds the node of a shard.
type nodes struct {
	cfg     Config
	cluster *redis.ClusterClient // nil: there is one server
	lookup  *breaker             // of asking where the masters are
	one     *node

	mu      sync.Mutex
	masters map[*redis.Client]*node // by client, since the cluster client makes a new one when a server leaves and comes back
}

// maxMasters bounds what is remembered of masters that are none any more.
const maxMasters = 256

func newNodes(rdb redis.UniversalClient, cfg Config) *nodes {
	ns := &nodes{cfg: cfg, masters: map[*redis.Client]*node{}}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		ns.cluster = cluster
		ns.lookup = newBreaker(cfg, addrOf(rdb), pingOf(rdb))
	} else {
		ns.one = ns.newNode(rdb)
	}
	return ns
}

func (ns *nodes) newNode(client commands) *node {
	return &node{client: client, breaker: newBreaker(ns.cfg, addrOf(client), pingOf(client))}
}

// addrOf is where client connects to, for people; it holds no credentials.
func addrOf(client commands) string {
	switch c := client.(type) {
	case *redis.Client:
		if addr := c.Options().Addr; addr != "FailoverClient" { // what go-redis says instead of an address that changes
			return addr
		}
		return "the sentinels' master"
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	}
	return fmt.Sprintf("a %T", client)
}

// pingOf is nil if the server answers, be it with an error: then it costs nobody time.
func pingOf(client commands) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := client.Ping(ctx).Err(); !answered(err) {
			return err
		}
		return nil
	}
}

// of returns the node that key is on, as far as the client knows; if that is wrong the cluster redirects the call, which is then
// counted for the wrong node once. The error is ErrUnavailable.
// timed is ctx with the call's timeout.
func (ns *nodes) of(ctx, timed context.Context, key string) (*node, error) {
	if ns.cluster == nil {
		return ns.one, nil
	}
	done, ok := ns.lookup.allow()
	if !ok {
		return nil, fmt.Errorf("%w: %w", dedupe.ErrUnavailable, errOpen)
	}
	client, err := ns.cluster.MasterForKey(timed, key)
	done(unlessGivenUp(ctx, err))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dedupe.ErrUnavailable, err)
	}
	ns.mu.Lock()
	defer ns.mu.Unlock()
	n := ns.masters[client]
	if n == nil {
		if len(ns.masters) >= maxMasters {
			clear(ns.masters)
		}
		n = ns.newNode(client)
		ns.masters[client] = n
	}
	return n, nil
}
