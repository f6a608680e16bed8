package rocketmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/internal/remoting"
)

func cutLine(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(strings.TrimSpace(line), "=")
	return name, value, ok && name != ""
}

// survey learns the cluster's side, makes what is missing, refuses what would lose messages or stand still in silence, and checks the
// guards. The client would only say "route info not found", for a dead name server and for a missing topic alike.
func (r *run) survey(ctx context.Context) error {
	brokers := map[string]string{}
	for _, rt := range r.routes {
		for _, t := range rt.topics {
			route, err := r.cluster.route(ctx, r.cfg.resource(t))
			switch {
			case errors.Is(err, errNoTopic):
				return fmt.Errorf("%w; create it: mqadmin updateTopic -n %s -c <cluster> -t %s", err, r.cfg.NameServers[0], r.cfg.resource(t))
			case err != nil:
				return err
			case len(route.read) == 0:
				return fmt.Errorf("rocketmq: topic %q has no queue that may be read; give it perm 6", r.cfg.resource(t))
			}
			maps.Copy(brokers, route.brokers)
		}
	}
	r.brokers = topicRoute{brokers: brokers}.masters()
	if err := r.checkGroup(ctx); err != nil {
		return err
	}
	if err := r.checkMembers(ctx); err != nil {
		return err
	}
	if err := r.ensureTopics(ctx); err != nil {
		return err
	}
	keeps, err := r.learn(ctx)
	if err != nil {
		return err
	}
	for _, rt := range r.routes {
		env := dedupe.Environment{RedeliveryHorizon: keeps, LongestDelay: r.longestDelay(rt)} // the pipeline knows the rest
		if _, err := rt.pipe.Check(ctx, env); err != nil {
			return err
		}
		r.sayWhatDiffers(ctx, rt)
	}
	return nil
}

// checkGroup makes the group where it is missing, and refuses two settings: without retry queues the broker says yes to a message that is
// sent back, and drops it; a group that may not consume gets nothing and is told nothing.
func (r *run) checkGroup(ctx context.Context) error {
	name := r.cfg.resource(r.cfg.Group)
	for _, addr := range r.brokers {
		g, found, err := r.cluster.group(ctx, addr, name)
		var refused *remoting.Error
		switch {
		case errors.As(err, &refused):
			r.log.WarnContext(ctx, "the broker does not tell the group's settings; with retryQueueNums=0 it drops messages that failed, and with consumeEnable=false it delivers none",
				"broker", addr, "group", name, "err", err)
			continue
		case err != nil:
			return fmt.Errorf("rocketmq: settings of group %q: %w", name, err)
		case !found && r.cfg.NoCreate:
			return fmt.Errorf("rocketmq: group %q does not exist on %s; create it: mqadmin updateSubGroup -b %s -g %s", name, addr, addr, name)
		case !found:
			if err := r.cluster.createGroup(ctx, addr, name); err != nil {
				return fmt.Errorf("rocketmq: create group %q on %s: %w; create it: mqadmin updateSubGroup -b %s -g %s", name, addr, err, addr, name)
			}
		case g.RetryQueueNums <= 0:
			return fmt.Errorf("rocketmq: group %q has retryQueueNums=%d on %s: messages that failed would be lost; set it: mqadmin updateSubGroup -b %s -g %s -q 1", name, g.RetryQueueNums, addr, addr, name)
		case !g.ConsumeEnable:
			return fmt.Errorf("rocketmq: group %q has consumeEnable=false on %s: it would get no messages; set it: mqadmin updateSubGroup -b %s -g %s -s true", name, addr, addr, name)
		}
	}
	return nil
}

// checkMembers refuses to join a group whose members consume other topics: the broker believes whoever spoke last, and queues are divided
// among members that do not consume them.
func (r *run) checkMembers(ctx context.Context) error {
	name := r.cfg.resource(r.cfg.Group)
	var mine []string
	for _, rt := range r.routes {
		for _, t := range rt.topics {
			mine = append(mine, r.cfg.resource(t))
		}
	}
	slices.Sort(mine)
	for _, addr := range r.brokers {
		resp, err := r.cluster.call(ctx, addr, remoting.GetConsumerConnection, map[string]string{"consumerGroup": name}, nil)
		if err != nil {
			continue // nobody is there, or it is not for us to know
		}
		theirs, err := subscriptions(resp.Body, retryPrefix)
		if err != nil {
			r.log.WarnContext(ctx, "cannot tell which topics other members consume", "broker", addr, "err", err)
			continue
		}
		if len(theirs) > 0 && !slices.Equal(mine, theirs) {
			return fmt.Errorf("rocketmq: another member of group %q consumes %q, and this one %q: some would get nothing; give all members the same topics, or another Group", name, theirs, mine)
		}
	}
	return nil
}

// subscriptions reads which topics the members of a group consume.
func subscriptions(body []byte, without string) ([]string, error) {
	var answer struct {
		ConnectionSet     []json.RawMessage          `json:"connectionSet"`
		SubscriptionTable map[string]json.RawMessage `json:"subscriptionTable"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.ConnectionSet) == 0 {
		return nil, err
	}
	var out []string
	for t := range answer.SubscriptionTable {
		if !strings.HasPrefix(t, without) {
			out = append(out, t)
		}
	}
	slices.Sort(out)
	return out, nil
}

// ensureTopics makes the retry topic, without which the first retry of a new group takes 40 s, and the dead-letter topics.
func (r *run) ensureTopics(ctx context.Context) error {
	names := []string{retryPrefix + r.cfg.Group}
	for _, rt := range r.routes {
		if name := letterTopic(r.cfg.Group, rt.policy); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		name = r.cfg.resource(name)
		route, err := r.cluster.route(ctx, name)
		switch {
		case err == nil && len(route.write) == 0:
			return fmt.Errorf("rocketmq: topic %q may not be written; set it: mqadmin updateTopicPerm -n %s -t '%s' -p 6", name, r.cfg.NameServers[0], name)
		case err == nil:
			continue
		case !errors.Is(err, errNoTopic):
			return err
		}
		command := fmt.Sprintf("create it: mqadmin updateTopic -n %s -c <cluster> -t '%s' -r 1 -w 1", r.cfg.NameServers[0], name)
		if r.cfg.NoCreate {
			return fmt.Errorf("%w; %s", err, command)
		}
		if err := r.cluster.createTopic(ctx, name, r.brokers); err != nil {
			return fmt.Errorf("%w; %s", err, command)
		}
	}
	return nil
}

// learn reads the delay levels and for how long brokers keep messages; 0: unknown.
func (r *run) learn(ctx context.Context) (keeps time.Duration, err error) {
	usual, err := ParseLevels(usualLevels)
	if err != nil {
		return 0, err
	}
	given := r.cfg.Levels
	for _, addr := range r.brokers {
		config, err := r.cluster.brokerConfig(ctx, addr)
		if err != nil {
			r.log.WarnContext(ctx, "the broker does not tell its settings; compare its fileReservedTime with the guard's retention, and its messageDelayLevel with Config.Levels", "broker", addr, "err", err)
			continue
		}
		if hours, err := strconv.Atoi(config["fileReservedTime"]); err == nil {
			keeps = max(keeps, time.Duration(hours)*time.Hour)
		}
		levels, err := ParseLevels(config["messageDelayLevel"])
		switch {
		case err != nil:
			r.log.WarnContext(ctx, "cannot read the broker's delay levels", "broker", addr, "err", err)
		case r.cfg.Levels == nil:
			r.cfg.Levels = levels
		case !slices.Equal(levels, r.cfg.Levels):
			r.log.WarnContext(ctx, "the broker has other delay levels: messages come back at other times than the policy says", "broker", addr, "levels", fmt.Sprint(levels), "assumed", fmt.Sprint(r.cfg.Levels))
		}
	}
	if r.cfg.Levels == nil {
		r.cfg.Levels = usual
	}
	if given == nil {
		for _, rt := range r.routes {
			if longest := r.cfg.Levels[len(r.cfg.Levels)-1]; rt.policy.LongestTier() > longest {
				return 0, fmt.Errorf("rocketmq: retry.tiers: %v is longer than the broker's longest delay level, %v; shorten the tier, or change the broker's messageDelayLevel", rt.policy.LongestTier(), longest)
			}
		}
	}
	return keeps, nil
}

// longestDelay is how long a message can stay with the broker between two attempts.
func (r *run) longestDelay(rt *route) time.Duration {
	if r.cfg.Orderly {
		return 0
	}
	return r.cfg.Levels[levelFor(r.cfg.Levels, max(rt.policy.LongestTier(), rt.policy.Retry.Backoff.Max))-1]
}

// sayWhatDiffers names what this policy means elsewhere and cannot mean here.
func (r *run) sayWhatDiffers(ctx context.Context, rt *route) {
	if r.cfg.Orderly {
		r.log.InfoContext(ctx, "order: each queue's, by orderly consumption; a member that joins waits a minute for its first queue, and the queues of a killed one stand still for 73 s")
		return
	}
	if rt.policy.Order == consumer.OrderKey {
		r.log.WarnContext(ctx, "order: key is not kept: RocketMQ's concurrent consumption has no order; set rocketmq.Config.Orderly if handlers need it, or order: none if they do not", "code", "order-not-kept")
	}
	var rounded []string
	for _, tier := range rt.policy.Retry.Tiers {
		if level := r.cfg.Levels[levelFor(r.cfg.Levels, tier)-1]; level != tier {
			rounded = append(rounded, fmt.Sprintf("%v waits %v", tier, level))
		}
	}
	if len(rounded) > 0 {
		r.log.WarnContext(ctx, "retry.tiers are rounded up to the broker's delay levels", "code", "delay-rounded", "tiers", strings.Join(rounded, ", "))
	}
	r.log.InfoContext(ctx, "delays are the broker's levels, rounded up", "levels", fmt.Sprint(r.cfg.Levels))
}
