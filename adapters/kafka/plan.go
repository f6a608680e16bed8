package kafka

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/internal/lanes"
	"github.com/idemq/idemq/internal/retrytopic"
)

// route is one pipeline with the topics that it gets and where its messages go.
type route struct {
	topics []string
	pipe   *consumer.Pipeline
	policy consumer.Policy
	pool   *lanes.Pool
	gate   *lanes.Gate // of pool

	batchMax  int
	batchWait time.Duration

	letters consumer.DeadLetters // nil: off
	retries []*copies            // of Policy.Retry.Tiers, in their order
}

// plan is what this member consumes and writes to. counts are the partitions that the group has divided; the rest does not change.
type plan struct {
	routes  []*route
	sources []string
	retries []string // retry topics of the group, of any tier, known here or not
	foreign []string // of those, the ones that no policy here names
	side    []*sideTopic
	byTopic map[string]*route
	counts  map[string]int
	// of Start: Latest: the partitions, at the start, of topics of which the group had committed nothing
	fresh map[string]int
}

func (p *plan) topics() []string { return slices.Concat(p.sources, p.retries) }

// routeOf finds the pipeline of a topic; a retry topic, and a topic that is not consumed any more, is the first one's.
func (p *plan) routeOf(topic string) *route {
	if rt := p.byTopic[topic]; rt != nil {
		return rt
	}
	return p.routes[0]
}

// ours says whether a route of this plan wrote the copy. Anyone may write to a topic with the name of a retry topic.
func (p *plan) ours(m *consumer.Message) bool {
	scope := header(m, consumer.HeaderScope)
	return slices.ContainsFunc(p.routes, func(rt *route) bool { return rt.pipe.Guard().Scope() == scope })
}

// routeOfCopy finds the pipeline of a message on a retry topic: by its origin, else by the scope that sent it there.
func (p *plan) routeOfCopy(m *consumer.Message) *route {
	if origin, err := consumer.ParsePosition(header(m, consumer.HeaderOrigin)); err == nil && p.byTopic[origin.Topic] != nil {
		return p.byTopic[origin.Topic]
	}
	scope := header(m, consumer.HeaderScope)
	for _, rt := range p.routes {
		if rt.pipe.Guard().Scope() == scope {
			return rt
		}
	}
	return p.routes[0]
}

func (p *plan) longestDrain() (d time.Duration) {
	for _, rt := range p.routes {
		d = max(d, rt.policy.DrainTimeout)
	}
	return d
}

func newPlan(log *slog.Logger, routes []Route) *plan {
	p := &plan{byTopic: map[string]*route{}, counts: map[string]int{}, fresh: map[string]int{}}
	for _, r := range routes {
		rt := &route{topics: r.Topics, pipe: r.Pipeline, policy: r.Pipeline.Policy()}
		rt.pool = lanes.NewPool(rt.policy.Concurrency)
		rt.gate = lanes.NewGate(rt.pool, rt.pipe.Ready, log.With("scope", rt.pipe.Guard().Scope()))
		b := r.Pipeline.Batch()
		rt.batchMax, rt.batchWait = b.Max, b.Wait
		p.routes = append(p.routes, rt)
		p.sources = append(p.sources, r.Topics...)
		for _, t := range r.Topics {
			p.byTopic[t] = rt
		}
	}
	return p
}

// survey learns the cluster's side of the plan, makes what is missing, and checks the guards.
func (r *run) survey(ctx context.Context) error {
	p := r.plan
	counts, err := r.cluster.partitions(ctx, p.sources)
	if err != nil {
		return err
	}
	p.remember(counts)
	client := r.cluster.client(p.sources...)
	if r.cfg.Start == Latest {
		if err := r.findFresh(ctx, client); err != nil {
			return err
		}
	}
	configs, err := r.cluster.configs(ctx, client, p.sources)
	if err != nil {
		return err
	}
	existing, err := r.cluster.retryTopics(ctx, r.cfg.Group)
	if err != nil {
		return err
	}
	p.addSides(r.cfg.Group, configs, existing)
	if err := r.cluster.ensure(ctx, p.side, !r.cfg.NoCreate); err != nil {
		return err
	}
	if len(p.retries) > 0 {
		if counts, err = r.cluster.partitions(ctx, p.retries); err != nil {
			return err
		}
		p.remember(counts)
	}
	var errs []error
	for _, rt := range p.routes {
		errs = append(errs, r.checkGuard(ctx, rt, configs))
	}
	return errors.Join(errs...)
}

// addSides lists retry and dead-letter topics with what their sources ask of them, and the retry topics that exist beside those: members
// with another configuration may have sent messages there, which nobody else reads.
func (p *plan) addSides(group string, configs map[string]topicConfig, existing []string) {
	byName := map[string]*sideTopic{}
	side := func(name string, tier time.Duration, rt *route) {
		s := byName[name]
		if s == nil {
			s = &sideTopic{name: name, tier: tier}
			byName[name] = s
			p.side = append(p.side, s)
		}
		for _, t := range rt.topics {
			s.merge(p.counts[t], configs[t])
		}
	}
	for _, rt := range p.routes {
		if name := letterTopic(group, rt.policy); name != "" {
			side(name, 0, rt)
		}
		for _, tier := range rt.policy.Retry.Tiers {
			name := retrytopic.Name(group, tier)
			side(name, tier, rt)
			p.retries = append(p.retries, name)
		}
	}
	for _, name := range existing {
		if !slices.Contains(p.retries, name) {
			p.foreign = append(p.foreign, name)
		}
	}
	p.retries = append(p.retries, existing...)
	slices.Sort(p.retries)
	p.retries = slices.Compact(p.retries)
}

// letterTopic is empty when the policy has no dead letters.
func letterTopic(group string, policy consumer.Policy) string {
	switch {
	case policy.DeadLetter.Off:
		return ""
	case policy.DeadLetter.Topic != "":
		return policy.DeadLetter.Topic
	}
	return group + dlqSuffix
}

// checkGuard compares how long the guard remembers with how long the broker can deliver, asks the stores, and has the promise logged.
func (r *run) checkGuard(ctx context.Context, rt *route, configs map[string]topicConfig) error {
	env := dedupe.Environment{RebalanceTimeout: r.cfg.Rebalance} // the pipeline knows the rest
	var oldest time.Duration                                     // of a record that is still there because its segment is not full
	for _, t := range rt.topics {
		c := configs[t]
		switch {
		case !c.known:
			r.log.WarnContext(ctx, "the broker does not tell how long it keeps the topic; compare it with the guard's retention", "topic", t)
		case c.unlimited:
			env.HorizonUnlimited = true
		default:
			env.RedeliveryHorizon = max(env.RedeliveryHorizon, c.retention)
			oldest = max(oldest, c.horizon())
		}
	}
	if keep := rt.pipe.Guard().Retention(); keep < oldest && keep >= env.RedeliveryHorizon {
		r.log.WarnContext(ctx, "done keys are forgotten before a quiet partition forgets its messages; raise dedupe.Config.Retention, or lower the topic's segment.ms",
			"code", "retention-below-segment", "retention", keep, "retention.ms and segment.ms", oldest)
	}
	_, err := rt.pipe.CheckWith(ctx, env, letterTopic(r.cfg.Group, rt.policy)) // logs the promise and the policy
	return err
}
