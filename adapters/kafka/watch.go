package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// watch looks at the topics until the session is over. New partitions end it, so that the group divides them; kafka-go's own watcher would
// begin hundreds of generations a second for a topic that is missing.
func (s *session) watch() {
	ctx := s.over
	t := time.NewTicker(s.r.cfg.WatchPartitions)
	defer t.Stop()
	changed := 0
	for {
		var counts map[string]int
		var err error
		select {
		case <-ctx.Done():
			return
		case <-s.look:
			counts, err = s.r.countNow(ctx, s.r.cluster.metadata)
		case <-t.C:
			s.r.refreshEnds(ctx, s.parts, s.r.cfg.WatchPartitions)
			metadata := s.r.learnt
			if len(s.r.absent) > 0 { // it may have learnt that before
				metadata = s.r.cluster.metadata
			}
			counts, err = s.r.countNow(ctx, metadata)
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.r.log.DebugContext(ctx, "cannot look for new partitions", "err", err)
			continue
		}
		back, err := s.missing(counts)
		if err != nil {
			s.end(err)
			return
		}
		if len(back) == 0 && !s.r.plan.differs(counts) {
			changed = 0
			continue
		}
		if changed++; changed < 2 { // once more: by then every broker knows, and the leader of the group asks any of them
			continue
		}
		for _, t := range back {
			if s.r.startAnew(t) == HaltThere {
				s.end(madeAnew(t))
				return
			}
			s.r.absent[t].back = true
		}
		s.r.log.InfoContext(ctx, "partitions have changed; joining the group again", "partitions", counts)
		s.r.plan.remember(counts)
		s.end(errRejoin)
		return
	}
}

// learnt is the metadata that the Transport has asked for last.
func (r *run) learnt(ctx context.Context, topics ...string) (*kafkago.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return r.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: topics})
}

// countNow reads the numbers of partitions; a topic that is not there has 0.
func (r *run) countNow(ctx context.Context, metadata func(context.Context, ...string) (*kafkago.MetadataResponse, error)) (map[string]int, error) {
	meta, err := metadata(ctx, r.plan.topics()...)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for _, t := range meta.Topics {
		switch {
		case t.Error == nil || errors.Is(t.Error, kafkago.LeaderNotAvailable):
			counts[t.Name] = len(t.Partitions)
		case errors.Is(t.Error, kafkago.UnknownTopicOrPartition):
			counts[t.Name] = 0
		default:
			return nil, fmt.Errorf("topic %q: %w", t.Name, t.Error)
		}
	}
	return counts, nil
}

// remember takes counts as what the group is about to divide.
func (p *plan) remember(counts map[string]int) { maps.Copy(p.counts, counts) }

// differs says whether a topic that is there has another number of partitions than the group has divided.
func (p *plan) differs(counts map[string]int) bool {
	for t, n := range counts {
		if n > 0 && p.counts[t] != n {
			return true
		}
	}
	return false
}
