package dedupe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Environment is what a runtime knows and the guard does not. Zero fields are unknown and not checked.
type Environment struct {
	HandlerTimeout    time.Duration
	DrainTimeout      time.Duration
	RebalanceTimeout  time.Duration // of the broker's group: DrainTimeout plus 5 s must fit in
	Concurrency       int           // messages in work in this process
	RedeliveryHorizon time.Duration // how old a message the broker can still deliver
	HorizonUnlimited  bool          // the broker keeps messages for ever
	LongestDelay      time.Duration // of a retry tier
}

// Report is the effective promise and what was found.
type Report struct {
	Promise  string // one line
	Findings []Finding
}

// drainMargin is what a drain needs beside its handlers: settling, the final commit, rejoining.
const drainMargin = 5 * time.Second

// awayFor is how long Check waits for a database that is not there yet: services start in any order.
const awayFor = 30 * time.Second

// Check asks the stores and compares settings. Adapters call it before the first message. The error joins the refused findings, or
// says which store could not be asked: a database that is away is asked again for 30 s; a Redis that is away is a warning,
// and the guard works without it (RedisOnly: messages wait).
func (g *Guard) Check(ctx context.Context, env Environment) (Report, error) {
	rep := Report{Promise: g.Promise()}
	g.stale.Store(int64(env.LongestDelay))
	rep.Findings = g.checkSettings(env)
	cenv := CheckEnv{Scope: g.cfg.Scope, Mode: g.cfg.Mode, Lease: g.cfg.Lease, Retention: g.cfg.Retention, Concurrency: env.Concurrency}
	var errs []error
	redisAway := false
	if g.cfg.Store != nil {
		fs, err := g.cfg.Store.Check(ctx, cenv)
		rep.Findings = append(rep.Findings, fs...)
		if redisAway = IsOutage(err); redisAway {
			rep.Findings = append(rep.Findings, g.redisAway(err))
		} else if err != nil {
			errs = append(errs, fmt.Errorf("dedupe: check redis: %w", err))
		}
	}
	if g.cfg.Log != nil {
		fs, err := g.checkLog(ctx, cenv)
		rep.Findings = append(rep.Findings, fs...)
		if err != nil {
			errs = append(errs, fmt.Errorf("dedupe: check the log: %w", err))
		}
	}
	for _, f := range rep.Findings {
		if f.Refuse {
			errs = append(errs, f)
		}
	}
	if len(errs) == 0 && !(redisAway && g.cfg.Mode == RedisOnly) {
		if err := g.enterPatiently(ctx); err != nil {
			errs = append(errs, err)
		}
	}
	return rep, errors.Join(errs...)
}

// enterPatiently enters the scope as checkLog asks: many processes that start at once make a database slow, and a start that fails for that
// would have to be repeated by hand. Entering again finds the row of the first try.
func (g *Guard) enterPatiently(ctx context.Context) error {
	what := "database"
	if g.cfg.Mode == RedisOnly {
		what = "redis"
	}
	err := g.patiently(ctx, what, g.enter)
	if IsOutage(err) {
		return fmt.Errorf("dedupe: check: %w", err)
	}
	return err
}

func (g *Guard) redisAway(err error) Finding {
	f := Finding{Code: "redis-away", What: fmt.Sprintf("redis does not answer (%v)", err), Remedy: "start it; until then every message asks the log"}
	if g.cfg.Mode == RedisOnly {
		f.Remedy = "start it; until then messages wait"
	}
	return f
}

// checkLog waits for a database that is away.
func (g *Guard) checkLog(ctx context.Context, env CheckEnv) (fs []Finding, err error) {
	err = g.patiently(ctx, "database", func(ctx context.Context) (err error) {
		fs, err = g.cfg.Log.Check(ctx, env)
		return err
	})
	return fs, err
}

// patiently asks what is away until it answers, ctx ends, or awayFor is over. The first failure is logged: half a minute of silence looks like
// a program that hangs.
func (g *Guard) patiently(ctx context.Context, what string, ask func(context.Context) error) (err error) {
	limited, cancel := context.WithTimeout(ctx, awayFor)
	defer cancel()
	told := false
	untilKnown(limited, func() bool {
		if err = ask(limited); IsOutage(err) && !told && limited.Err() == nil {
			g.cfg.Logger.WarnContext(ctx, fmt.Sprintf("%s does not answer; asked again for %v", what, awayFor), "scope", g.cfg.Scope, "err", err)
			told = true
		}
		return IsOutage(err)
	})
	switch {
	case IsOutage(err) && ctx.Err() != nil:
		return fmt.Errorf("the %s does not answer, and the start was given up: %w", what, err)
	case IsOutage(err):
		return fmt.Errorf("the %s has not answered for %v: see that it runs and can be reached from here, and start this process again: %w", what, awayFor, err)
	}
	return err
}

func (g *Guard) checkSettings(env Environment) (fs []Finding) {
	add := func(refuse bool, code, remedy, format string, args ...any) {
		fs = append(fs, Finding{Refuse: refuse, Code: code, What: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	if env.RedeliveryHorizon > g.cfg.Retention {
		add(true, "retention-below-horizon", "raise dedupe.Config.Retention, or lower the topic's retention",
			"done keys are remembered for %v, and the broker can deliver messages that are %v old", g.cfg.Retention, env.RedeliveryHorizon)
	}
	if env.HorizonUnlimited {
		add(false, "horizon-unlimited", "never replay messages older than dedupe.Config.Retention, or set a retention on the topic",
			"the broker keeps messages for ever, and done keys are remembered for %v", g.cfg.Retention)
	}
	if env.LongestDelay > g.cfg.Retention {
		add(true, "retention-below-delay", "raise dedupe.Config.Retention, or shorten retry.tiers",
			"done keys are remembered for %v, and a retry may wait %v", g.cfg.Retention, env.LongestDelay)
	}
	if env.RebalanceTimeout > 0 && env.DrainTimeout+drainMargin > env.RebalanceTimeout {
		add(true, "drain-above-rebalance", "lower drain_timeout, or raise the group's rebalance timeout",
			"draining may take %v and %v more, and the group waits %v", env.DrainTimeout, drainMargin, env.RebalanceTimeout)
	}
	return fs
}

// Promise is the one line that is logged at start: what the guard promises with its settings. Nothing is asked.
func (g *Guard) Promise() string {
	var b strings.Builder
	fmt.Fprintf(&b, "scope %q, %v: ", g.cfg.Scope, g.cfg.Mode)
	switch g.cfg.Mode {
	case Transactional:
		b.WriteString("effects in the log's database happen once, whatever happens to redis, broker and process")
	case Logged:
		b.WriteString("an effect repeats only if its process dies between effect and completion, or freezes or is cut off from the log while it works, or its handler ignores a cancelled context")
	case RedisOnly:
		b.WriteString("once as far as redis remembers: after a flush, an eviction or a failover with lost writes, effects repeat; while redis is away messages wait")
		if g.cfg.OnMemoryLoss == ContinueOnMemoryLoss {
			b.WriteString("; a lost memory is named and not waited for")
		}
	}
	switch {
	case g.cfg.Mode == RedisOnly:
	case g.cfg.Store != nil:
		b.WriteString("; redis asked first")
	case g.cfg.Mode == Transactional:
		b.WriteString("; no redis (deaths-uncounted)")
	default:
		b.WriteString("; no redis")
	}
	fmt.Fprintf(&b, "; lease %v, remembered for %v", g.cfg.Lease, g.cfg.Retention)
	return b.String()
}
