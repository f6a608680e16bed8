package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/internal/hook"
	"github.com/idemq/idemq/internal/lanes"
)

// bounds of a partition, for a reader of committed records.
type bounds struct{ first, end int64 }

// listBounds asks the leaders. Partitions without an answer are missing from the result, and err says why of one of them.
func listBounds(ctx context.Context, client *kafkago.Client, tps []TopicPartition) (map[TopicPartition]bounds, error) {
	out := map[TopicPartition]bounds{}
	var wrong error
	byTopic := map[string][]int{}
	for _, tp := range tps {
		byTopic[tp.Topic] = append(byTopic[tp.Topic], tp.Partition)
	}
	for topic, ps := range byTopic {
		reqs := make([]kafkago.OffsetRequest, 0, 2*len(ps))
		for _, p := range ps {
			reqs = append(reqs, kafkago.FirstOffsetOf(p), kafkago.LastOffsetOf(p))
		}
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		res, err := client.ListOffsets(ctx, &kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: reqs}, IsolationLevel: kafkago.ReadCommitted})
		cancel()
		if err != nil {
			wrong = fmt.Errorf("offsets of %s: %w", topic, err)
			continue
		}
		for _, p := range res.Topics[topic] {
			if p.Error != nil {
				wrong = fmt.Errorf("offsets of %s/%d: %w", topic, p.Partition, p.Error)
				continue
			}
			if p.FirstOffset < 0 || p.LastOffset < 0 {
				wrong = fmt.Errorf("offsets of %s/%d: not known yet", topic, p.Partition)
				continue
			}
			out[TopicPartition{topic, p.Partition}] = bounds{p.FirstOffset, p.LastOffset}
		}
	}
	return out, wrong
}

// resolveStarts finds where partitions without a committed offset begin. False when the session ended before all are known.
func (s *session) resolveStarts() bool {
	for {
		var open []TopicPartition
		for _, p := range s.parts {
			if p.offset < 0 {
				open = append(open, p.tp)
			}
		}
		if len(open) == 0 {
			return true
		}
		found, err := listBounds(s.over, s.r.client, open)
		for _, p := range s.parts {
			if b, ok := found[p.tp]; ok && p.offset < 0 {
				p.offset = b.first
				if p.latest {
					p.offset = b.end
				}
				if p.anew {
					s.r.log.WarnContext(s.over, "topic was made anew", "topic", p.tp.Topic, "partition", p.tp.Partition, "committed", p.old, "first", b.first, "end", b.end, "goes on at", p.offset)
					hook.Each(s.over, s.r.log, s.r.cfg.Hooks, func(h HookOutOfRange) { h.OnOutOfRange(s.over, p.tp, p.old, b.first, b.end, p.offset) })
				}
			}
		}
		if err != nil {
			s.r.log.WarnContext(s.over, "cannot find where to begin; trying again", "err", err)
		}
		if len(found) < len(open) && lanes.Sleep(s.over, 300*time.Millisecond) != nil {
			return false
		}
	}
}

// findFresh finds the topics that are new to the group. It is asked before this member joins: when its first generation divides partitions
// that nobody has owned, none of them was committed by another member of that generation.
func (r *run) findFresh(ctx context.Context, client *kafkago.Client) error {
	of := map[string][]int{}
	for _, t := range r.plan.sources {
		for p := range r.plan.counts[t] {
			of[t] = append(of[t], p)
		}
	}
	found, err := r.committedAtStart(ctx, client, of)
	if err != nil {
		return fmt.Errorf("kafka: read the offsets of group %q, for Config.Start latest: %w", r.cfg.Group, err)
	}
	for t, ps := range of {
		if !slices.ContainsFunc(found[t], func(p kafkago.OffsetFetchPartition) bool { return p.CommittedOffset >= 0 }) {
			r.plan.fresh[t] = len(ps)
		}
	}
	return nil
}

// committedAtStart waits for a coordinator: the first group of a cluster is asked for before it has one.
func (r *run) committedAtStart(ctx context.Context, client *kafkago.Client, of map[string][]int) (map[string][]kafkago.OffsetFetchPartition, error) {
	end := time.Now().Add(keeperBound)
	for {
		found, err := r.committed(ctx, client, of)
		switch {
		case err == nil:
			return found, nil
		case errors.Is(err, kafkago.GroupIdNotFound):
			return nil, nil
		case !transient(err) || time.Now().After(end):
			return nil, err
		}
		if err := lanes.Sleep(ctx, keeperPause); err != nil {
			return nil, err
		}
	}
}

// outOfRange decides about a partition whose next offset is gone. It returns when the partition is to be fetched again; otherwise the session is
// over.
func (p *partition) outOfRange() {
	r := p.s.r
	found, err := listBounds(p.s.over, r.client, []TopicPartition{p.tp})
	b, ok := found[p.tp]
	switch {
	case !ok:
		r.log.WarnContext(p.s.over, "offset is out of range, and the range is not known; trying again", "topic", p.tp.Topic, "partition", p.tp.Partition, "offset", p.offset, "err", err)
		return
	case b.first <= p.offset && p.offset <= b.end: // a leader that was just chosen knew less for a moment
		return
	}
	policy := r.cfg.OutOfRange
	if p.offset > b.end { // as after the topic was made anew, so quickly that nobody saw it gone
		policy = r.startAnew(p.tp.Topic)
	}
	next := int64(-1)
	switch policy {
	case Earliest:
		next = b.first
	case Latest:
		next = b.end
	}
	hook.Each(p.s.over, r.log, r.cfg.Hooks, func(h HookOutOfRange) { h.OnOutOfRange(p.s.over, p.tp, p.offset, b.first, b.end, next) })
	if next < 0 {
		if p.offset > b.end {
			p.lose() // once that many records are there, a watermark of before would skip them
		}
		p.s.end(haltf("%s/%d: offset %d is gone: the partition has %d to %d; records were deleted or the topic was made anew: choose Config.OutOfRange, or set the group's offset by kafka-consumer-groups.sh --reset-offsets", p.tp.Topic, p.tp.Partition, p.offset, b.first, b.end))
		return
	}
	r.log.WarnContext(p.s.over, "offset is out of range", "topic", p.tp.Topic, "partition", p.tp.Partition, "offset", p.offset, "first", b.first, "end", b.end, "goes on at", next)
	p.jump(next)
	p.s.end(errRejoin)
}
