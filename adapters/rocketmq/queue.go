package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/lanes"
)

// leftAlone is how often an orderly queue that halted is looked at: not more than that it is still halted.
const leftAlone = 5 * time.Second

// queueKey finds a queue. The group's retry queue belongs to each route whose messages it brings.
type queueKey struct {
	route *route
	queue Queue
}

// queue runs the deliveries of one queue of the broker's. The client gives them out in no order, or, orderly, one at a time: the lanes' offsets are
// just the order in which they came.
type queue struct {
	r     *run
	route *route
	at    Queue
	lanes *lanes.Partition[*job]

	mu      sync.Mutex
	next    int64
	blocked map[string]bool // keys that go no further after a dead letter

	halted bool // guarded by r.mu
}

// queueOf finds or makes the queue of a delivery. With r.mu held.
func (r *run) queueOf(rt *route, raw *primitive.MessageExt) *queue {
	at := Queue{Topic: r.cfg.shown(raw.Topic)}
	if raw.GetProperty(primitive.PropertyRetryTopic) != "" {
		at.Topic = retryPrefix + r.cfg.Group
	}
	if raw.Queue != nil {
		at.Broker, at.ID = raw.Queue.BrokerName, raw.Queue.QueueId
	}
	key := queueKey{rt, at}
	if q := r.queues[key]; q != nil {
		return q
	}
	q := &queue{r: r, route: rt, at: at, blocked: map[string]bool{}}
	batch := rt.pipe.Batch()
	q.lanes = lanes.NewPartition(r.ctx, rt.pool, lanes.Config[*job]{Run: q.process, Unordered: true, BatchMax: batch.Max, BatchWait: batch.Wait})
	r.queues[key] = q
	return q
}

// add puts a job into the lanes. One that comes to a stopped queue waits there for the end of the run.
func (q *queue) add(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next++
	q.lanes.Deliver(q.next, nil, j)
}

// process runs jobs through their pipeline and obeys.
func (q *queue) process(ctx context.Context, jobs []*job) []lanes.Result {
	if q.isBlocked(jobs[0].m) && jobs[0].begin() { // orderly, so it is alone
		q.leave(ctx, jobs[0], errBlocked)
	}
	results := make([]lanes.Result, len(jobs))
	var at []int // ms[i] is of jobs[at[i]]
	var ms []*consumer.Message
	for i, j := range jobs {
		results[i].Action = lanes.Settle // for the lanes a withdrawn job is at its end
		if j.begin() {
			at, ms = append(at, i), append(ms, j.m)
		}
	}
	if len(ms) == 0 {
		return results
	}
	ds, err := q.ask(ctx, ms)
	if err != nil {
		q.r.end(&halt{err})
		for _, i := range at {
			jobs[i].finish(parked)
		}
		return results
	}
	for n, i := range at {
		results[i] = q.obey(ctx, jobs[i], ds[n])
	}
	return results
}

// ask calls the pipeline. Its panic, or ours, is no reason to lose the process.
func (q *queue) ask(ctx context.Context, ms []*consumer.Message) (ds []consumer.Disposition, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("rocketmq: panic while a message was in work: %v\n%s", p, debug.Stack())
		}
	}()
	if q.route.pipe.Batch().Max > 1 {
		return q.route.pipe.ProcessBatch(ctx, ms, q.route.letters), nil
	}
	return []consumer.Disposition{q.route.pipe.Process(ctx, ms[0], q.route.letters)}, nil
}

// obey does what the pipeline decided.
func (q *queue) obey(ctx context.Context, j *job, d consumer.Disposition) lanes.Result {
	settled := lanes.Result{Action: lanes.Settle}
	switch {
	case d.Action == consumer.Ack:
		if d.Letter && q.route.policy.AfterLetter == consumer.Block {
			q.block(j.m)
		}
		j.finish(acked)
	case d.Action == consumer.Halt:
		q.halt(ctx, j, d.Err)
	case d.Why == consumer.Draining:
		j.finish(parked)
	case d.Why == consumer.Outage:
		q.r.outage(q.route, d.Err)
		if j.away.IsZero() {
			j.away = time.Now()
		}
		if time.Since(j.away) > q.r.parkedAtMost {
			j.finish(answer{after: handBackAfter})
			return settled
		}
		j.again()
		q.r.withdrawLate(q.route, j)
		return lanes.Result{Action: lanes.Retry}
	default:
		j.finish(answer{after: d.After})
	}
	return settled
}

// halt ends the run, or leaves the queue alone until the next start.
func (q *queue) halt(ctx context.Context, j *job, err error) {
	if q.route.policy.OnHalt == consumer.PausePartition {
		q.leave(ctx, j, err)
		return
	}
	q.lanes.Stop() // nothing of this queue begins any more
	q.r.end(&halt{fmt.Errorf("rocketmq: halted at %v of %v: %w", j.m.Position, q.at, err)})
	j.finish(parked)
}

// leave leaves the queue alone. Its message gets no answer; orderly, where the client would stand still with all its locks, it is asked for
// again every now and then.
func (q *queue) leave(ctx context.Context, j *job, err error) {
	q.lanes.Stop()
	q.r.log.ErrorContext(ctx, "queue halted; it is left alone until the next start", "queue", q.at.String(), "message", j.m.Position.String(), "err", err)
	q.r.mu.Lock()
	q.halted = true
	q.r.left[q.at] = err
	q.r.mu.Unlock()
	if q.r.cfg.Orderly {
		j.finish(answer{after: leftAlone})
		return
	}
	j.finish(parked)
}

// errBlocked is why a queue is left alone whose next message may not run.
var errBlocked = errors.New("rocketmq: an earlier message of the key is a dead letter, and after_letter is block")

func (q *queue) block(m *consumer.Message) {
	if m.Key != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.blocked[string(m.Key)] = true
	}
}

func (q *queue) isBlocked(m *consumer.Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return m.Key != nil && q.blocked[string(m.Key)]
}

func sortQueues(qs []Queue) {
	slices.SortFunc(qs, func(a, b Queue) int { return strings.Compare(a.String(), b.String()) })
}
