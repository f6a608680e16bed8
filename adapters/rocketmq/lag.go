package rocketmq

import (
	"context"
	"time"

	"github.com/idemq/idemq/internal/remoting"
)

// lagEvery is how often brokers are asked. Properties of messages tell the end of a queue too, but only while messages flow.
const lagEvery = 5 * time.Second

func (r *run) watchLag() {
	for wait := time.Second; sleep(r.ctx, wait) == nil; wait = lagEvery {
		assigned, lag := r.askLag(r.ctx)
		r.mu.Lock()
		r.assigned, r.lag = assigned, lag
		r.mu.Unlock()
		r.applySuspend()
		r.tellLag(r.ctx, lag)
	}
}

func (r *run) askLag(ctx context.Context) (assigned []Queue, lag map[Queue]int64) {
	lag = map[Queue]int64{}
	routes := map[string]topicRoute{}
	r.mu.Lock()
	client := r.client
	r.mu.Unlock()
	for mq, committed := range client.committed() {
		at := Queue{r.cfg.shownOwn(mq.Topic), mq.BrokerName, mq.QueueId}
		assigned = append(assigned, at)
		if _, known := routes[mq.Topic]; !known {
			found, err := r.cluster.route(ctx, mq.Topic)
			if err != nil {
				r.log.DebugContext(ctx, "cannot ask for the lag", "topic", mq.Topic, "err", err)
			}
			routes[mq.Topic] = found
		}
		addr := routes[mq.Topic].brokers[mq.BrokerName]
		if addr == "" || committed < 0 {
			continue
		}
		end, err := r.cluster.offset(ctx, addr, remoting.GetMaxOffset, Queue{mq.Topic, mq.BrokerName, mq.QueueId})
		if err != nil {
			r.log.DebugContext(ctx, "cannot ask for the lag", "topic", mq.Topic, "broker", mq.BrokerName, "queue", mq.QueueId, "err", err)
			continue
		}
		lag[at] = max(end-committed, 0) // the end trails acknowledged sends for a moment
	}
	sortQueues(assigned)
	return assigned, lag
}
