// Package lanes runs deliveries for the adapters: order for each key, concurrency across keys, and the offset up to which all is
// settled. It knows no broker.
//
// A Pool runs at most n messages at once. A Partition belongs to a pool and is one assigned partition (or queue): the adapter
// delivers what it fetched, in the order of offsets, and each message runs in the lane of its key. A lane runs one message at a
// time, in order; messages without a key, and all messages of an Unordered partition, have a lane of their own. A lane exists only
// while it has messages, and so do goroutines.
//
// What Run answers decides: Settle, and the watermark may move; Retry, and the message is run again after a while, before the
// others of its lane, holding no slot of the pool while it waits; Hold, and it stays unsettled, and its lane stands still, until
// the partition ends. The zero Result is Retry, so that forgetting to answer never loses a message.
//
// The adapter stops fetching while Room is false: too much was done ahead of one held message (all of it would be sent again to
// the next owner), or the pool is paused: its Gate does that while the store cannot answer, and asks the store until it does.
//
// The end of a partition, in this order: Stop (nothing starts any more, waits inside of consumer.Pipeline end), Wait for what runs,
// Cancel what runs too long, Wait again; then the watermark is final and is committed. Drain does all of it. Messages that
// were not started are dropped unsettled: no claim was made for them, so the next owner waits for nothing.
package lanes

import (
	"sync"

	"github.com/idemq/idemq/internal/broadcast"
)

// Pool bounds how many messages run at once in its partitions. Safe for concurrent use.
type Pool struct {
	limit int

	mu      sync.Mutex // guards the partitions and lanes of the pool too
	workers int
	paused  bool
	ready   []task           // first in, first out
	rooms   broadcast.Signal // Room may have become true
}

// task is a lane with something to run. begin and end are called with the pool's lock held.
type task interface {
	begin() bool // false: nothing to do any more
	run()
	end()
}

// NewPool returns a pool for n messages at once; n below 1 is 1.
func NewPool(n int) *Pool { return &Pool{limit: max(n, 1)} }

// Pause starts nothing new until Resume; what runs goes on.
func (p *Pool) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = true
}

// Resume ends Pause.
func (p *Pool) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	p.rooms.Fire()
	p.start()
}

// start lets goroutines work off the ready lanes. With p.mu held.
func (p *Pool) start() {
	for n := len(p.ready); n > 0 && p.workers < p.limit && !p.paused; n-- {
		p.workers++
		go p.work()
	}
}

func (p *Pool) work() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.ready) > 0 && !p.paused {
		t := p.ready[0]
		p.ready[0] = nil
		p.ready = p.ready[1:]
		if !t.begin() {
			continue
		}
		p.mu.Unlock()
		t.run()
		p.mu.Lock()
		t.end()
	}
	p.workers--
}
