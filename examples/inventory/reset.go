package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/idemq/idemq/dedupe"
)

type resetCmd struct {
	services
	SKUs        int   `name:"skus" default:"20" help:"How many articles there are."`
	Stock       int64 `default:"10000" help:"Opening stock of each. The last article has a quarter of it, so that it may sell out."`
	Partitions  int   `default:"6" help:"Partitions of the topic."`
	Replication int   `default:"-1" help:"Replicas of the topic; -1: the broker's default."`
}

// Run makes topic, tables and stock anew. No consumer of the group may run.
func (c *resetCmd) Run(ctx context.Context, t terminal) error {
	bad := c.validateStores()
	for _, n := range []struct {
		flag  string
		value int64
	}{{"--skus", int64(c.SKUs)}, {"--stock", c.Stock}, {"--partitions", int64(c.Partitions)}} {
		if n.value < 1 {
			bad = append(bad, fmt.Errorf("%s %d: at least 1", n.flag, n.value))
		}
	}
	if c.Replication != -1 && c.Replication < 1 {
		bad = append(bad, fmt.Errorf("--replication %d: at least 1, or -1 for the broker's default", c.Replication))
	}
	if err := problems(bad); err != nil {
		return err
	}
	p, err := c.open(nil)
	if err != nil {
		return err
	}
	defer p.close()
	// The group goes first: while it has members, nothing is touched.
	if err := c.resetBroker(ctx); err != nil {
		return err
	}
	if err := refill(ctx, p.db, c.opening()); err != nil {
		return err
	}
	if err := p.forget(ctx, c.services); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "topic %s with %d partitions, %d articles in stock, group %s starts from nothing\n", c.Topic, c.Partitions, c.SKUs, c.Group)
	return nil
}

func (c *resetCmd) opening() map[string]int64 {
	opening := map[string]int64{}
	for i := 1; i <= c.SKUs; i++ {
		opening[sku(i)] = c.Stock
	}
	opening[sku(c.SKUs)] = max(1, c.Stock/4)
	return opening
}

// resetBroker makes the topic of the orders anew and removes the retry and dead-letter topics, which consumers make when they start.
func (c *resetCmd) resetBroker(ctx context.Context) error {
	policy, err := c.policy()
	if err != nil {
		return err
	}
	b := openBroker(c.Brokers)
	defer b.close()
	if _, err := b.topics(ctx); err != nil {
		return err // the clear one
	}
	for _, group := range []string{c.Group, c.naiveGroup()} {
		if err := b.forgetGroup(ctx, group); err != nil {
			return err
		}
	}
	return b.recreate(ctx, c.Topic, c.Partitions, c.Replication, func(name string) bool {
		return name == c.Topic || name == c.deadLetterTopic(policy) || isRetryTopic(c.Group, name)
	})
}

// forget makes every message new again: in the log, and in Redis. Never do this to a system whose messages matter.
func (p *parts) forget(ctx context.Context, s services) error {
	audit := dedupe.Audit{By: "inventory", Reason: "reset"}
	if p.log != nil {
		if err := p.log.Migrate(ctx); err != nil {
			return err
		}
		if _, err := p.db.ExecContext(ctx, p.db.Rebind("DELETE FROM idempotent_log WHERE scope = ?"), []byte(s.Group)); err != nil {
			return fmt.Errorf("empty idempotent_log: %w", err)
		}
		_, err := p.log.Enter(ctx, dedupe.ScopeRow{Scope: s.Group, Mode: s.Mode, Retention: p.guard.Retention()})
		if errors.Is(err, dedupe.ErrWrongMode) {
			err = p.guard.ChangeMode(ctx, audit)
		}
		if err != nil {
			return err
		}
		if err := p.guard.Restored(ctx, audit); err != nil {
			return err
		}
	}
	if p.redis != nil {
		return forgetRedis(ctx, p.redis, s.Group)
	}
	return nil
}

// forgetRedis deletes the keys of scope on every node.
func forgetRedis(ctx context.Context, rdb redis.UniversalClient, scope string) error {
	node := func(ctx context.Context, c redis.Cmdable) error {
		it := c.Scan(ctx, 0, "idemq:{"+escapeGlob(scope)+":*", 1000).Iterator()
		for it.Next(ctx) {
			if err := c.Del(ctx, it.Val()).Err(); err != nil {
				return err
			}
		}
		return it.Err()
	}
	var err error
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return node(ctx, c) })
	} else {
		err = node(ctx, rdb)
	}
	if err != nil {
		return fmt.Errorf("forget in redis: %w", err)
	}
	return nil
}

// escapeGlob makes a pattern match s only.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
