package lanes

import "time"

// lane is the queue of one key. Its fields are guarded by the pool's lock; only run works without it, on the batch that begin took.
type lane[T any] struct {
	part *Partition[T]
	key  laneKey

	items   []item[T]
	state   state
	timer   *time.Timer // gathering, waiting
	batch   []item[T]   // running
	results []Result
}

// laneKey finds a lane: by the message's key, or, alone, by its offset.
type laneKey struct {
	key    string
	alone  bool
	offset int64
}

type item[T any] struct {
	offset int64
	value  T
}

// state of a lane. idle -> (gathering ->) queued -> running -> idle, queued, waiting or standing; waiting -> queued. Stop makes
// every lane that does not run standing.
type state uint8

const (
	idle      state = iota // empty
	gathering              // a batch that is not full waits for more
	queued                 // in pool.ready
	running
	waiting  // for a retry
	standing // held, blocked or stopped: for good
)

// schedule brings a lane with items on its way.
func (l *lane[T]) schedule() {
	cfg := l.part.cfg
	if len(l.items) < cfg.BatchMax && cfg.BatchWait > 0 {
		l.after(cfg.BatchWait, gathering)
		return
	}
	l.queue()
}

func (l *lane[T]) queue() {
	l.state = queued
	l.part.pool.ready = append(l.part.pool.ready, l)
	l.part.pool.start()
}

// after queues the lane when d has passed, unless it has left state s by then.
func (l *lane[T]) after(d time.Duration, s state) {
	l.state = s
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		l.part.pool.mu.Lock()
		defer l.part.pool.mu.Unlock()
		if l.state == s && l.timer == timer {
			l.queue()
		}
	})
	l.timer = timer
}

// drop empties a lane that does not run: its items stay unsettled.
func (l *lane[T]) drop() {
	l.items = nil
	if l.state == running {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.state = standing
}

func (l *lane[T]) begin() bool {
	q := l.part
	if q.stopped || l.state != queued {
		return false
	}
	n := min(len(l.items), q.cfg.BatchMax)
	l.batch, l.items = l.items[:n:n], l.items[n:]
	l.state = running
	q.waiting -= n
	for _, it := range l.batch {
		q.running[it.offset] = it.value
	}
	return true
}

func (l *lane[T]) run() {
	values := make([]T, len(l.batch))
	for i, it := range l.batch {
		values[i] = it.value
	}
	l.results = l.part.cfg.Run(l.part.ctx, values)
}

// end settles what ran. Items to be run again go back to the front, in their order; the longest wait counts.
func (l *lane[T]) end() {
	q := l.part
	var again []item[T]
	var wait time.Duration
	stands := false
	for i, it := range l.batch {
		var r Result
		if i < len(l.results) {
			r = l.results[i]
		}
		delete(q.running, it.offset)
		switch r.Action {
		case Settle:
			q.mark.Settle(it.offset)
			stands = stands || r.Block
		case Hold:
			stands = true
		default:
			again = append(again, it)
			wait = max(wait, r.After)
		}
	}
	l.batch, l.results = nil, nil
	q.ended.Fire()
	q.pool.rooms.Fire()
	if q.stopped || stands {
		l.state = standing
		return
	}
	if len(again) > 0 {
		q.waiting += len(again)
		l.items = append(again, l.items...)
	}
	switch {
	case len(again) > 0 && wait > 0:
		l.after(wait, waiting)
	case len(l.items) > 0:
		l.schedule()
	default:
		l.state = idle
		delete(q.lanes, l.key)
	}
}
