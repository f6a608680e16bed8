package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/broadcast"
	"github.com/idemq/idemq/internal/lanes"
	"github.com/idemq/idemq/internal/retrytopic"
)

// partition is one assigned partition: it is fetched, its records go into lanes, its watermark is committed. It lives as long as its session.
type partition struct {
	s     *session
	tp    TopicPartition
	route *route        // whose pool and limits it has
	drain time.Duration // how long its handlers may take to end
	retry bool          // of a retry topic
	tier  time.Duration

	lanes   *lanes.Partition[*consumer.Message]
	waiting budget // bytes of messages that are not settled
	offset  int64  // next to fetch; of the fetching goroutine
	latest  bool   // begins at the end when there is no committed offset
	anew    bool   // the topic was made anew; old is what was committed before
	old     int64
	// a record of another scope was seen on this retry topic
	strangers bool
	end       atomic.Int64
	fetched   atomic.Int64 // unix nanoseconds of the last answer

	mu     sync.Mutex
	jumped *int64 // where to go on after an offset was out of range, whatever the watermark says
	lost   bool   // the topic is gone: no offset means anything any more
	// the first dead letter whose key goes no further, and whether the whole partition stands still by now
	blocked error
	stands  bool
}

func newPartition(s *session, tp TopicPartition, offset int64) *partition {
	p := &partition{s: s, tp: tp, offset: offset}
	p.end.Store(-1)
	p.tier, p.retry = retrytopic.Delay(s.r.cfg.Group, tp.Topic)
	p.latest = tp.Partition < s.r.plan.fresh[tp.Topic]
	p.route = s.r.plan.routeOf(tp.Topic)
	p.drain = p.route.policy.DrainTimeout
	if p.retry {
		p.drain = s.r.plan.longestDrain() // its messages belong to any route
	}
	p.waiting.limit = s.r.cfg.MaxWaiting
	cfg := lanes.Config[*consumer.Message]{
		Run:       p.process,
		MaxAhead:  s.r.cfg.MaxAhead,
		MaxAge:    p.route.pipe.Guard().Retention() / 2,
		Unordered: p.retry || p.route.policy.Order == consumer.OrderNone,
	}
	if !p.retry {
		cfg.BatchMax, cfg.BatchWait = p.route.batchMax, p.route.batchWait
	}
	p.lanes = lanes.NewPartition(s.r.ctx, p.route.pool, cfg)
	return p
}

// fetch brings records into the lanes until the session is over.
func (p *partition) fetch() {
	ctx := p.s.over
	var buf []record
	var troubles backoff
	for {
		if p.lanes.WaitRoom(ctx) != nil || p.waiting.wait(ctx) != nil {
			<-ctx.Done() // a halted partition is left alone until the session is over
			return
		}
		f, err := fetchOnce(ctx, p.s.r.transport, p.s.r.cluster.addr, p.tp.Topic, p.tp.Partition, p.offset, partitionMaxBytes, buf)
		switch {
		case ctx.Err() != nil:
			return
		case p.isLost():
			<-ctx.Done() // watch ends the session when the topic is back, or has been gone for too long
			return
		case err != nil:
			p.trouble(ctx, err, &troubles)
			continue
		}
		if troubles.reset() {
			p.s.r.log.InfoContext(ctx, "fetching again", "topic", p.tp.Topic, "partition", p.tp.Partition)
		}
		buf = f.records
		p.end.Store(f.end)
		p.fetched.Store(time.Now().UnixNano())
		if !p.deliver(ctx, f) {
			return
		}
		clear(buf) // the bytes belong to messages now
		p.offset = f.next
	}
}

// trouble says what is wrong, loudly once, and waits, or ends the session.
func (p *partition) trouble(ctx context.Context, err error, troubles *backoff) {
	level := slog.LevelWarn
	if troubles.wait > 0 {
		level = slog.LevelDebug
	}
	switch {
	case errors.Is(err, kafkago.OffsetOutOfRange):
		p.outOfRange()
	case errors.Is(err, kafkago.UnknownTopicOrPartition), errors.Is(err, errTopicGone):
		level = slog.LevelDebug
		p.s.lookNow()
	case moving(err):
		level = slog.LevelDebug
	}
	p.s.r.log.Log(ctx, level, "fetch failed; trying again", "topic", p.tp.Topic, "partition", p.tp.Partition, "err", err)
	lanes.Sleep(ctx, troubles.next()) //nolint:errcheck // the loop looks at ctx
}

// moving: another broker leads the partition by now. The Transport learns it within metadataTTL.
func moving(err error) bool {
	return errors.Is(err, kafkago.NotLeaderForPartition) || errors.Is(err, kafkago.LeaderNotAvailable) || errors.Is(err, kafkago.FencedLeaderEpoch) ||
		errors.Is(err, kafkago.UnknownLeaderEpoch) || errors.Is(err, kafkago.OffsetNotAvailable)
}

// deliver hands over what was fetched. A record of a retry topic waits here until it is due, and with it all behind it, which are due later: no claim, no lane, no
// further fetch. False when the session is over.
func (p *partition) deliver(ctx context.Context, f fetched) bool {
	for i := range f.records {
		rec := &f.records[i]
		if p.retry {
			if due := time.Until(rec.time.Add(p.tier)); due > 0 && lanes.Sleep(ctx, min(due, p.tier)) != nil {
				return false
			}
		}
		m := messageOf(p.tp, rec)
		if p.retry {
			p.believe(ctx, m)
		}
		p.waiting.add(messageSize(m))
		if !p.lanes.Deliver(rec.offset, m.Key, m) {
			p.waiting.add(-messageSize(m))
		}
	}
	p.lanes.Skip(f.next)
	return ctx.Err() == nil
}

// believe marks a copy that one of our pipelines wrote.
func (p *partition) believe(ctx context.Context, m *consumer.Message) {
	m.OwnRetry = p.s.r.plan.ours(m)
	if !m.OwnRetry && !p.strangers {
		p.strangers = true
		p.s.r.log.WarnContext(ctx, "a record on a retry topic is of another scope or none; it is consumed like any other message of this topic",
			"message", m.Position.String(), "scope", header(m, consumer.HeaderScope))
	}
}

// watermark is what to commit.
func (p *partition) watermark() (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost {
		return 0, false
	}
	if p.jumped != nil {
		return *p.jumped, true
	}
	return p.lanes.Commit()
}

// lose: the topic is gone.
func (p *partition) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
}

func (p *partition) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// jump makes the partition go on at next, in the next session.
func (p *partition) jump(next int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jumped = &next
}

// messageOverhead is about what a message costs beside its bytes.
const messageOverhead = 512

func messageSize(m *consumer.Message) int {
	n := messageOverhead + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// budget bounds bytes. It is asked before a fetch, so one answer may go over it.
type budget struct {
	limit int

	mu    sync.Mutex
	used  int
	freed broadcast.Signal
}

func (b *budget) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
	if n < 0 {
		b.freed.Fire()
	}
}

func (b *budget) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		if b.used < b.limit {
			b.mu.Unlock()
			return ctx.Err()
		}
		freed := b.freed.Wait()
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-freed:
		}
	}
}

// maxTrouble is the longest wait after an error.
const maxTrouble = 2 * time.Second

// backoff is 100 ms, doubled up to maxTrouble.
type backoff struct{ wait time.Duration }

func (b *backoff) next() time.Duration {
	b.wait = min(max(2*b.wait, 100*time.Millisecond), maxTrouble)
	return b.wait
}

// reset says whether there was anything to reset.
func (b *backoff) reset() (was bool) {
	was, b.wait = b.wait > 0, 0
	return was
}
