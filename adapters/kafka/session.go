package kafka

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/hook"
)

// handlerGrace is how long handlers may go on after their contexts ended in a drain; with their settling and the last commit it fits into
// rebalanceMargin.
const handlerGrace = 3 * time.Second

// errRejoin ends a session whose assignment is out of date.
var errRejoin = errors.New("join the group again")

// session is this member's part in one generation of the group: its partitions, from the first fetch to the last commit.
type session struct {
	r     *run
	gen   *kafkago.Generation
	parts []*partition

	over     context.Context // ends when nothing new may begin; its cause says why
	end      context.CancelCauseFunc
	finished chan struct{} // closed when everything is settled and committed
	look     chan struct{} // a fetcher has met a topic that is not there
}

func newSession(r *run, gen *kafkago.Generation) *session {
	s := &session{r: r, gen: gen, finished: make(chan struct{}), look: make(chan struct{}, 1)}
	s.over, s.end = context.WithCancelCause(r.ctx) // ctx of Run: its end ends every session
	return s
}

// failure is why the consumer cannot go on; nil after a rebalance or a stop.
func (s *session) failure() error {
	cause := context.Cause(s.over)
	if errors.Is(cause, errRejoin) || errors.Is(cause, kafkago.ErrGenerationEnded) || s.r.ctx.Err() != nil && !isHalt(cause) {
		return nil
	}
	return cause
}

// main is the one function that the generation runs for us. It returns when the work is settled and committed: returning earlier would end the
// generation for all partitions. When the consumer stops it stays until the group is being left, since kafka-go would otherwise join
// again.
func (s *session) main(gctx context.Context) {
	unwatch := context.AfterFunc(gctx, func() { s.end(kafkago.ErrGenerationEnded) })
	defer unwatch()
	ctx := context.WithoutCancel(s.r.ctx)
	k := &committer{r: s.r, gen: s.gen, sent: map[TopicPartition]int64{}}
	s.guarded(func() {
		if s.assign(k) {
			s.work(k)
		}
	})
	s.guarded(func() { s.settle(ctx, k) })
	close(s.finished)
	if s.failure() != nil || s.r.ctx.Err() != nil {
		<-gctx.Done()
	}
}

// settle brings the session to its end: it drains, commits for the last time, and waits for a coordinator.
func (s *session) settle(ctx context.Context, k *committer) {
	s.drain(ctx, k)
	if err := k.final(ctx, s.r.ctx, s.offsets()); err != nil {
		s.r.log.WarnContext(ctx, "last commit of the generation failed; messages will be delivered again", "generation", s.gen.ID, "err", err)
	}
	s.r.setParts(nil)
	hook.Each(ctx, s.r.log, s.r.cfg.Hooks, func(h HookRebalance) { h.OnRevoked(ctx, s.gen.ID, s.assigned()) })
}

// assign makes the partitions, finds where each begins, and commits that. False when the session ended meanwhile.
func (s *session) assign(k *committer) bool {
	for topic, as := range s.gen.Assignments {
		for _, a := range as {
			s.parts = append(s.parts, newPartition(s, TopicPartition{topic, a.ID}, a.Offset))
		}
	}
	if !s.beginAnew() || !s.resolveStarts() {
		return false
	}
	for _, p := range s.parts {
		p.lanes.Skip(p.offset)
	}
	s.r.setParts(s.parts)
	s.r.setPhase(consumer.PhaseRunning)
	s.r.log.InfoContext(s.over, "partitions assigned", "group", s.gen.GroupID, "generation", s.gen.ID, "member", s.gen.MemberID, "partitions", len(s.parts), "topics", s.counts())
	hook.Each(s.over, s.r.log, s.r.cfg.Hooks, func(h HookRebalance) { h.OnAssigned(s.over, s.gen.ID, s.assigned()) })
	s.commit(k, true) // trap 14: a start that is not committed is chosen anew, and perhaps later, next time
	s.begun()
	return true
}

// work fetches and runs until the session is over, and commits meanwhile.
func (s *session) work(k *committer) {
	defer context.AfterFunc(s.over, s.stopLanes)()
	var fetchers sync.WaitGroup
	for _, p := range s.parts {
		fetchers.Go(func() { s.guarded(p.fetch) })
	}
	fetchers.Go(func() { s.guarded(s.watch) })
	defer fetchers.Wait()

	t := time.NewTicker(commitInterval(s.r.cfg.Session))
	defer t.Stop()
	for {
		select {
		case <-s.over.Done():
			return
		case <-t.C:
			s.commit(k, false)
			s.r.tellLag(s.over, s.parts)
			s.tellStanding()
		}
	}
}

// stopLanes: nothing begins any more, even while a last commit to a broker that is gone takes its time.
func (s *session) stopLanes() {
	for _, p := range s.parts {
		p.lanes.Stop()
	}
}

// guarded turns a panic of a goroutine into the end of the consumer.
func (s *session) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.end(haltf("panic in the consumer: %v\n%s", p, debug.Stack()))
		}
	}()
	f()
}

// drain lets what runs come to its end, drops what has not begun, and goes on committing: in a rebalance kafka-go sends no heartbeats, and
// a commit is as good as one.
func (s *session) drain(ctx context.Context, k *committer) {
	if s.r.ctx.Err() != nil {
		s.r.setPhase(consumer.PhaseDraining)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.drainParts(ctx)
	}()
	t := time.NewTicker(commitInterval(s.r.cfg.Session))
	defer t.Stop()
	for {
		select {
		case <-drained:
			return
		case <-t.C:
			s.commit(k, true)
		}
	}
}

func (s *session) drainParts(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range s.parts {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, p.drain)
			defer cancel()
			err := p.lanes.Drain(ctx, handlerGrace)
			if errors.Is(err, consumer.ErrDrainTimeout) {
				s.r.abandon(p)
			}
			if err != nil {
				s.r.log.ErrorContext(ctx, "handlers do not return; their messages will be delivered again", "topic", p.tp.Topic, "partition", p.tp.Partition, "err", err)
			}
		})
	}
	wg.Wait()
}

// commit logs what fails: the next commit, or the last one, tries again.
func (s *session) commit(k *committer, all bool) {
	ctx := context.WithoutCancel(s.over)
	if err := k.commit(ctx, s.offsets(), all); err != nil {
		s.r.log.DebugContext(ctx, "commit failed; trying again", "generation", s.gen.ID, "err", err)
	}
}

// offsets are the watermarks of this generation's partitions.
func (s *session) offsets() map[TopicPartition]int64 {
	out := make(map[TopicPartition]int64, len(s.parts))
	for _, p := range s.parts {
		if o, ok := p.watermark(); ok {
			out[p.tp] = o
		}
	}
	return out
}

// counts are this member's partitions of each topic, retry topics too.
func (s *session) counts() map[string]int {
	counts := map[string]int{}
	for _, p := range s.parts {
		counts[p.tp.Topic]++
	}
	return counts
}

func (s *session) assigned() []TopicPartition {
	out := make([]TopicPartition, len(s.parts))
	for i, p := range s.parts {
		out[i] = p.tp
	}
	return out
}

// halt is an error that ends Run.
type halt struct{ err error }

func (h *halt) Error() string { return h.err.Error() }
func (h *halt) Unwrap() error { return h.err }

func haltf(format string, args ...any) error { return &halt{fmt.Errorf("kafka: "+format, args...)} }

func isHalt(err error) bool {
	var h *halt
	return errors.As(err, &h)
}
