package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.r.refreshEnds(ctx, s.parts, s.r.cfg.WatchPartitions)
		counts, err := s.r.countNow(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.r.log.DebugContext(ctx, "cannot look for new partitions", "err", err)
			continue
		}
		if err := s.r.missing(counts); err != nil {
			s.end(err)
			return
		}
		if !s.r.plan.differs(counts) {
			changed = 0
			continue
		}
		if changed++; changed < 2 { // once more: by then every broker knows, and the leader of the group asks any of them
			continue
		}
		s.r.log.InfoContext(ctx, "number of partitions has changed; joining the group again", "partitions", counts)
		s.r.plan.remember(counts)
		s.end(errRejoin)
		return
	}
}

// countNow reads the numbers of partitions that the Transport has learnt last; a topic that is not there has 0.
func (r *run) countNow(ctx context.Context) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	meta, err := r.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: r.plan.topics()})
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

// missing is an error once a topic has been gone for a while, unless the user waits for it, or it is a retry topic that only another
// configuration needed.
func (r *run) missing(counts map[string]int) error {
	for _, t := range r.plan.topics() {
		if n, asked := counts[t]; !asked || n > 0 {
			delete(r.goneSince, t)
			continue
		}
		delete(counts, t) // not a change of partitions
		since, known := r.goneSince[t]
		switch {
		case !known:
			r.goneSince[t] = time.Now()
			r.log.ErrorContext(r.ctx, "topic is gone", "topic", t)
		case time.Since(since) > r.c.goneFor && !r.cfg.WaitForTopic && !slices.Contains(r.plan.foreign, t):
			return haltf("topic %q was deleted while it was consumed; create it, or set Config.WaitForTopic", t)
		}
	}
	return nil
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
