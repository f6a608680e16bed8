package kafka

import (
	"slices"
	"time"
)

// absence of a topic. When it is back it is another topic: its offsets begin anew, and what the group committed means nothing there. A
// broker that says wrongly that a topic is gone costs a halt or a start from the beginning, not a message.
type absence struct {
	since time.Time
	back  bool // the group is joined again because of that
}

// missing notes the topics that are gone, and takes them out of counts. back are those that are there again. It is an error once a topic has been
// gone for a while, unless the user waits for it, or it is a retry topic that only another configuration needed.
func (s *session) missing(counts map[string]int) (back []string, err error) {
	r := s.r
	for _, t := range r.plan.topics() {
		n, asked := counts[t]
		a := r.absent[t]
		switch {
		case !asked || n > 0 && a == nil:
			continue
		case n > 0:
			back = append(back, t)
			continue
		}
		delete(counts, t) // not a change of partitions
		switch {
		case a == nil:
			r.absent[t] = &absence{since: time.Now()}
			r.log.ErrorContext(r.ctx, "topic is gone", "topic", t)
			s.lose(t)
		case time.Since(a.since) > r.c.goneFor && !r.cfg.WaitForTopic && !slices.Contains(r.plan.foreign, t):
			return nil, haltf("topic %q was deleted while it was consumed; create it, or set Config.WaitForTopic", t)
		}
	}
	return back, nil
}

// lose ends fetching and committing of a topic for this session: neither may meet the next topic of that name.
func (s *session) lose(topic string) {
	for _, p := range s.parts {
		if p.tp.Topic == topic {
			p.lose()
		}
	}
}

// lookNow makes watch ask the brokers at once: a topic may be gone for a moment only.
func (s *session) lookNow() {
	select {
	case s.look <- struct{}{}:
	default: // it is about to
	}
}

// startAnew is where a topic that was made anew begins.
func (r *run) startAnew(topic string) Start {
	if r.cfg.OutOfRange == HaltThere && (r.cfg.WaitForTopic || slices.Contains(r.plan.foreign, topic)) {
		return Earliest
	}
	return r.cfg.OutOfRange
}

func madeAnew(topic string) error {
	return haltf("topic %q was deleted and made anew while it was consumed: the committed offsets belong to the old one; set the group's offsets by kafka-consumer-groups.sh --reset-offsets, or choose Config.OutOfRange or Config.WaitForTopic", topic)
}

// beginAnew forgets the committed offsets of topics that were gone. False when the user did not say where to begin.
func (s *session) beginAnew() bool {
	for _, p := range s.parts {
		if s.r.absent[p.tp.Topic] == nil {
			continue
		}
		start := s.r.startAnew(p.tp.Topic)
		if start == HaltThere {
			s.lose(p.tp.Topic)
			s.end(madeAnew(p.tp.Topic))
			return false
		}
		p.old, p.anew = p.offset, true
		p.offset, p.latest = -1, start == Latest
	}
	return true
}

// begun forgets absences that are over.
func (s *session) begun() {
	for _, p := range s.parts {
		delete(s.r.absent, p.tp.Topic)
	}
	for t, a := range s.r.absent {
		if a.back { // its partitions are with others
			delete(s.r.absent, t)
		}
	}
}
