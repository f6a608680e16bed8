package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/retrytopic"
)

// run is one call of Consumer.Run.
type run struct {
	c   *Consumer
	cfg Config
	log *slog.Logger
	ctx context.Context // ends when Run is to stop

	plan      *plan
	cluster   *cluster
	transport *kafkago.Transport
	client    *kafkago.Client

	// topics that were seen to be gone; of the session that is under way
	absent map[string]*absence

	mu        sync.Mutex
	phase     consumer.Phase
	parts     []*partition
	left      map[TopicPartition]error
	abandoned []*partition // whose handlers did not return in an earlier drain
}

func newRun(c *Consumer, ctx context.Context) *run {
	return &run{
		c: c, cfg: c.cfg, log: c.log, ctx: ctx,
		plan: newPlan(c.log, c.routes), cluster: newCluster(c.cfg),
		absent: map[string]*absence{},
		phase:  consumer.PhaseStarting, left: map[TopicPartition]error{},
	}
}

// run works until ctx ends or something asks for a halt. Its order at the end: what is in flight is settled, offsets are committed, the group is left, writers
// and connections are closed.
func (r *run) run() (err error) {
	ctx, cancel := context.WithCancel(r.ctx)
	r.ctx = ctx
	defer func() {
		cancel()
		r.cluster.close()
		err = errors.Join(err, r.closeWriters())
	}()
	for _, rt := range r.plan.routes {
		defer rt.gate.Start(ctx)()
	}
	if err := r.prepare(); err != nil {
		if ctx.Err() != nil {
			return nil // stopped while starting
		}
		return err
	}
	err = r.memberOf(ctx)
	return errors.Join(err, r.stragglers())
}

func (r *run) prepare() error {
	if err := r.cluster.connect(r.ctx, r.cfg); err != nil {
		return err
	}
	if err := r.survey(r.ctx); err != nil {
		return err
	}
	r.transport = r.cluster.transport(r.plan.topics()...)
	r.client = &kafkago.Client{Addr: r.cluster.addr, Timeout: requestTimeout, Transport: r.transport}
	side := map[string]*sideTopic{}
	for _, s := range r.plan.side {
		side[s.name] = s
	}
	for _, rt := range r.plan.routes {
		if name := letterTopic(r.cfg.Group, rt.policy); name != "" {
			rt.letters = &letterWriter{r.cluster.copiesTo(side[name])}
		}
		for _, tier := range rt.policy.Retry.Tiers {
			rt.retries = append(rt.retries, r.cluster.copiesTo(side[retrytopic.Name(r.cfg.Group, tier)]))
		}
	}
	return nil
}

func (r *run) closeWriters() error {
	var errs []error
	for _, rt := range r.plan.routes {
		if l, ok := rt.letters.(*letterWriter); ok {
			errs = append(errs, l.to.close())
		}
		for _, c := range rt.retries {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}

// abandon remembers a partition whose handlers did not return.
func (r *run) abandon(p *partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = append(r.abandoned, p)
}

// stragglers reports handlers of any generation that run still.
func (r *run) stragglers() error {
	r.mu.Lock()
	abandoned := r.abandoned
	r.mu.Unlock()
	var errs []error
	for _, p := range abandoned {
		if _, running := p.lanes.Load(); running > 0 {
			errs = append(errs, p.lanes.Drain(r.ctx, time.Millisecond))
		}
	}
	if err := errors.Join(errs...); errors.Is(err, consumer.ErrDrainTimeout) {
		return err
	}
	return nil
}

func (r *run) hold() {
	for _, rt := range r.plan.routes {
		rt.gate.Pause()
	}
}

func (r *run) release() {
	for _, rt := range r.plan.routes {
		rt.gate.Resume()
	}
}

func (r *run) setPhase(p consumer.Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = p
}

// setParts begins or, with nil, ends what a session holds.
func (r *run) setParts(parts []*partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = parts
	clear(r.left)
}

func (r *run) partitions() []*partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts
}

// notePaused remembers a partition that halted and is left alone.
func (r *run) notePaused(tp TopicPartition, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left[tp] = why
}

func (r *run) describe(s *State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Phase, s.Err = r.phase, nil
	for _, p := range r.parts {
		s.Assigned = append(s.Assigned, p.tp)
		if err := p.blockedBy(); err != nil {
			if s.Blocked == nil {
				s.Blocked = map[TopicPartition]error{}
			}
			s.Blocked[p.tp] = err
		}
	}
	if len(r.left) > 0 {
		s.Left = map[TopicPartition]error{}
		for tp, err := range r.left {
			s.Left[tp] = err
		}
	}
	for _, p := range r.parts {
		if cause := context.Cause(p.s.over); isHalt(cause) {
			s.Phase, s.Err = consumer.PhaseDraining, cause
		}
	}
	if s.Phase != consumer.PhaseRunning {
		return
	}
	for _, rt := range r.plan.routes {
		if phase, outage := rt.gate.Phase(); s.Err == nil && phase != consumer.PhaseRunning {
			s.Phase, s.Err = phase, outage
		}
	}
}
