package rocketmq

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/idemq/idemq/consumer"
)

// answer is what a delivery ends with.
type answer struct {
	ack   bool
	after time.Duration // not ack: until the next delivery
	park  bool          // no answer before the client is shut down
}

var (
	acked  = answer{ack: true}
	parked = answer{park: true, after: time.Second}
)

// job is a message that a callback of the client waits for.
type job struct {
	m     *consumer.Message
	route *route
	state atomic.Int32 // jobWaiting or one of the others
	away  time.Time    // since when a store does not answer; zero: it does
	done  chan answer  // has room for the one answer
}

const (
	jobWaiting int32 = iota
	jobRunning
	jobEnded
)

// begin says whether the job may run: it may have been withdrawn.
func (j *job) begin() bool { return j.state.CompareAndSwap(jobWaiting, jobRunning) }

// again puts a running job back among those that wait.
func (j *job) again() { j.state.Store(jobWaiting) }

// withdraw ends a job that waits. One that runs is left alone.
func (j *job) withdraw(a answer) {
	if j.state.CompareAndSwap(jobWaiting, jobEnded) {
		j.done <- a
	}
}

// finish ends a running job.
func (j *job) finish(a answer) {
	if j.state.CompareAndSwap(jobRunning, jobEnded) {
		j.done <- a
	}
}

// consume is the client's callback. It never panics, never returns a result that it has not chosen, and returns only when the message
// is settled, has to come again, or does not matter any more.
func (r *run) consume(ctx context.Context, rt *route, ms []*primitive.MessageExt) (result rmq.ConsumeResult) {
	a := answer{after: time.Second}
	defer func() {
		if p := recover(); p != nil { // the pipeline recovers the handler's panics: this one is ours
			r.end(&halt{fmt.Errorf("rocketmq: panic while a message was delivered: %v\n%s", p, debug.Stack())})
			a = answer{after: time.Second}
		}
		result = r.tell(ctx, a)
	}()
	if len(ms) != 1 {
		return // as many again: we asked for one at a time
	}
	a = r.deliver(rt, ms[0])
	return
}

// tell turns an answer into the client's terms. Orderly, only suspending keeps the order, and without a time of ours it would repeat
// a quarter of a million times a second.
func (r *run) tell(ctx context.Context, a answer) rmq.ConsumeResult {
	if a.ack {
		return rmq.ConsumeSuccess
	}
	if r.cfg.Orderly {
		if octx, ok := primitive.GetOrderlyCtx(ctx); ok {
			octx.SuspendCurrentQueueTimeMillis = int(max(a.after, 10*time.Millisecond).Milliseconds())
		}
		return rmq.SuspendCurrentQueueAMoment
	}
	if cctx, ok := primitive.GetConcurrentlyCtx(ctx); ok {
		cctx.DelayLevelWhenNextConsume = levelFor(r.cfg.Levels, a.after)
	}
	return rmq.ConsumeRetryLater
}

// deliver waits for the end of a message. A parked one waits for the end of the client.
func (r *run) deliver(rt *route, raw *primitive.MessageExt) answer {
	a := r.settle(rt, raw)
	if a.park {
		r.mu.Lock()
		r.parked++
		r.mu.Unlock()
		<-r.released
	}
	return a
}

func (r *run) settle(rt *route, raw *primitive.MessageExt) answer {
	j := &job{m: r.message(raw), route: rt, done: make(chan answer, 1)}
	q, a, ok := r.enter(rt, raw, j)
	if !ok {
		return a
	}
	defer r.leave(j)
	q.add(j)
	select {
	case a := <-j.done:
		return a
	case <-r.released: // the drain gave up on it
		return parked
	}
}

// message is raw as the pipeline sees it.
func (r *run) message(raw *primitive.MessageExt) *consumer.Message {
	m := FromRocketMQ(raw)
	m.Topic = r.cfg.shown(m.Topic)
	m.Origin.Topic = m.Topic
	return m
}

// enter counts a callback in, or answers it at once: while the run drains, or when an outage has lasted so long that what waits is given back.
func (r *run) enter(rt *route, raw *primitive.MessageExt, j *job) (*queue, answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return nil, parked, false
	}
	if rt.gate.overdue {
		return nil, answer{after: handBackAfter}, false
	}
	q := r.queueOf(rt, raw)
	if r.cfg.Orderly && q.halted {
		return nil, answer{after: leftAlone}, false
	}
	r.jobs[j] = struct{}{}
	r.inside++
	return q, answer{}, true
}

func (r *run) leave(j *job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, j)
	r.inside--
	r.checkIdle()
}
