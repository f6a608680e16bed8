package lanes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/broadcast"
)

// ErrStopped: the partition takes no more messages.
var ErrStopped = errors.New("lanes: partition is stopped")

// DefaultMaxAhead is how many messages may be done ahead of one that holds the watermark.
const DefaultMaxAhead = 10_000

// Config of a Partition.
type Config[T any] struct {
	// Run works on items: one, or up to BatchMax. Result i belongs to item i; missing ones are Retry. Its ctx ends with the cause given to
	// Cancel, and carries the begin of the drain for consumer.Pipeline.
	Run func(ctx context.Context, items []T) []Result
	// MaxAhead bounds Watermark.Ahead; default DefaultMaxAhead. Room is false from there on.
	MaxAhead int
	// MaxAge bounds for how long one message may hold the watermark while others go ahead of it: half the retention of the guard.
	// Room is false from there on. Zero: unbounded.
	MaxAge time.Duration
	// Unordered gives each message a lane of its own.
	Unordered bool
	// BatchMax over 1 runs the partition as one lane, up to so many messages together.
	BatchMax int
	// BatchWait is how long a batch that is not full waits for more.
	BatchWait time.Duration
}

// Action is what becomes of a message that ran.
type Action uint8

const (
	// Retry runs it again after Result.After.
	Retry Action = iota
	// Settle: it needs no further delivery.
	Settle
	// Hold: it stays unsettled and its lane stands still as long as the partition lives.
	Hold
)

// Result of one message.
type Result struct {
	Action Action
	After  time.Duration
	// Block, with Settle: the lane goes no further. Its next messages stay unsettled.
	Block bool
}

// Partition is the work of one assigned partition. Safe for concurrent use, except that Deliver is called by one goroutine, in the
// order of offsets.
type Partition[T any] struct {
	pool   *Pool
	cfg    Config[T]
	ctx    context.Context // of Run; not a caller's: it ends by Cancel only
	cancel context.CancelCauseFunc
	begun  chan struct{} // closed by Stop

	// guarded by pool.mu
	lanes   map[laneKey]*lane[T]
	mark    Watermark
	running map[int64]T
	waiting int
	stopped bool
	ended   broadcast.Signal // a lane has ended its run
}

// NewPartition adds a partition to p. ctx gives values only; its end does not end what runs.
func NewPartition[T any](ctx context.Context, p *Pool, cfg Config[T]) *Partition[T] {
	if cfg.MaxAhead <= 0 {
		cfg.MaxAhead = DefaultMaxAhead
	}
	cfg.BatchMax = max(cfg.BatchMax, 1)
	part := &Partition[T]{pool: p, cfg: cfg, begun: make(chan struct{}), lanes: map[laneKey]*lane[T]{}, running: map[int64]T{}}
	part.ctx, part.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	part.ctx = consumer.WithDrain(part.ctx, part.begun)
	return part
}

// Deliver puts one message into its lane and returns at once. A nil key is no key: no order is kept for it. False when the partition is
// stopped or the offset was delivered before: the message is dropped, unsettled.
func (q *Partition[T]) Deliver(offset int64, key []byte, v T) bool {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if q.stopped || !q.mark.Deliver(offset, time.Now()) {
		return false
	}
	q.waiting++
	l := q.laneOf(offset, key)
	l.items = append(l.items, item[T]{offset, v})
	switch {
	case l.state == idle:
		l.schedule()
	case l.state == gathering && len(l.items) >= q.cfg.BatchMax:
		l.timer.Stop()
		l.queue()
	}
	return true
}

// Skip says that offsets below next hold nothing for us but what was delivered, so that the watermark may pass them. A stopped partition
// skips nothing: messages among them may have been dropped.
func (q *Partition[T]) Skip(next int64) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if !q.stopped {
		q.mark.Skip(next)
	}
}

func (q *Partition[T]) laneOf(offset int64, key []byte) *lane[T] {
	k := laneKey{key: string(key)}
	switch {
	case q.cfg.BatchMax > 1:
		k = laneKey{}
	case key == nil || q.cfg.Unordered:
		k = laneKey{alone: true, offset: offset}
	}
	l := q.lanes[k]
	if l == nil {
		l = &lane[T]{part: q, key: k}
		q.lanes[k] = l
	}
	return l
}

// Room says whether to fetch more.
func (q *Partition[T]) Room() bool {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	return q.room()
}

func (q *Partition[T]) room() bool {
	oldest, held := q.mark.Oldest()
	old := held && q.cfg.MaxAge > 0 && time.Since(oldest) > q.cfg.MaxAge
	return !q.stopped && !q.pool.paused && !old && q.mark.Ahead() < q.cfg.MaxAhead
}

// WaitRoom waits until there is room: nil; or ErrStopped, or the cause of ctx's end.
func (q *Partition[T]) WaitRoom(ctx context.Context) error {
	for {
		q.pool.mu.Lock()
		room, stopped, changed := q.room(), q.stopped, q.pool.rooms.Wait()
		q.pool.mu.Unlock()
		switch {
		case stopped:
			return ErrStopped
		case room:
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// Commit is the offset to commit; see Watermark.Commit.
func (q *Partition[T]) Commit() (int64, bool) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	return q.mark.Commit()
}

// Ended is closed when the next run has ended: Commit may answer more then. To miss nothing, get it before calling Commit.
func (q *Partition[T]) Ended() <-chan struct{} {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	return q.ended.Wait()
}

// Load says how many messages wait in lanes and how many run.
func (q *Partition[T]) Load() (waiting, running int) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	return q.waiting, len(q.running)
}

// Stop begins the end: nothing starts any more, and what waits is dropped. It does not wait, may be called again, and may be called
// inside of Run.
func (q *Partition[T]) Stop() {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if q.stopped {
		return
	}
	q.stopped = true
	close(q.begun)
	for _, l := range q.lanes {
		l.drop()
	}
	q.waiting = 0
	q.pool.rooms.Fire()
}

// Cancel ends the context of what runs, with this cause.
func (q *Partition[T]) Cancel(cause error) { q.cancel(cause) }

// Wait returns nil once nothing runs; what would start later is not waited for, so Stop comes before. When ctx ends earlier it
// returns its cause.
func (q *Partition[T]) Wait(ctx context.Context) error {
	for {
		q.pool.mu.Lock()
		n, ended := len(q.running), q.ended.Wait()
		q.pool.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ended:
		}
	}
}

// Drain stops the partition, waits for what runs until ctx ends, cancels the rest with consumer.ErrDraining and gives it grace to
// return. An error matches consumer.ErrDrainTimeout and names what still runs: its claims are not released.
func (q *Partition[T]) Drain(ctx context.Context, grace time.Duration) error {
	q.Stop()
	if q.Wait(ctx) == nil {
		return nil
	}
	q.Cancel(consumer.ErrDraining)
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer done()
	if q.Wait(ctx) == nil {
		return nil
	}
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	offsets := make([]int64, 0, len(q.running))
	for o := range q.running {
		offsets = append(offsets, o)
	}
	return fmt.Errorf("lanes: drain: %w: %d still running, at offsets %v", consumer.ErrDrainTimeout, len(offsets), offsets)
}
