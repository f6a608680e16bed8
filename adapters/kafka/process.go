package kafka

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/lanes"
)

// process runs messages through their pipeline and obeys.
func (p *partition) process(ctx context.Context, ms []*consumer.Message) (results []lanes.Result) {
	defer func() {
		if v := recover(); v != nil { // the pipeline recovers the handler's panics: this one is ours or the pipeline's
			p.s.end(haltf("panic while a message was in work: %v\n%s", v, debug.Stack()))
			results = nil // all of them again, which the end of the session prevents
		}
	}()
	rt := p.route
	if p.retry {
		rt = p.s.r.plan.routeOfCopy(ms[0])
		if phase, _ := rt.gate.Phase(); rt != p.route && phase == consumer.PhasePaused { // the pool here is another route's, and open
			return []lanes.Result{{Action: lanes.Retry, After: time.Second}}
		}
	}
	var ds []consumer.Disposition
	if p.route.batchMax > 1 && !p.retry {
		ds = rt.pipe.ProcessBatch(ctx, ms, rt.letters)
	} else {
		ds = []consumer.Disposition{rt.pipe.Process(ctx, ms[0], rt.letters)}
	}
	results = make([]lanes.Result, len(ms))
	for i, m := range ms {
		results[i] = p.obey(ctx, rt, m, ds[i])
		if results[i].Action == lanes.Settle {
			p.waiting.add(-messageSize(m))
		}
	}
	return results
}

// obey does what the pipeline decided. The source is settled only after its copy on a retry topic is acknowledged.
func (p *partition) obey(ctx context.Context, rt *route, m *consumer.Message, d consumer.Disposition) lanes.Result {
	switch d.Action {
	case consumer.Ack:
		block := d.Letter && rt.policy.AfterLetter == consumer.Block
		if block {
			p.block(ctx, m)
		}
		return lanes.Result{Action: lanes.Settle, Block: block}
	case consumer.Halt:
		return p.halt(ctx, rt, m, d)
	}
	switch d.Why {
	case consumer.Outage:
		rt.gate.Outage(d.Err)
	case consumer.Failed:
		if d.Tier >= 0 && d.Tier < len(rt.retries) {
			return p.sendToRetry(ctx, rt, m, d)
		}
	}
	return lanes.Result{Action: lanes.Retry, After: d.After}
}

// sendToRetry writes the copy, again and again until the broker has it or the session is over: another run of the handler would count as another
// attempt.
func (p *partition) sendToRetry(ctx context.Context, rt *route, m *consumer.Message, d consumer.Disposition) lanes.Result {
	var troubles backoff
	for {
		err := rt.retries[d.Tier].write(ctx, copyOf(m, consumer.RetryHeaders(m, d)))
		if err == nil {
			return lanes.Result{Action: lanes.Settle}
		}
		p.s.r.log.WarnContext(ctx, "cannot write to the retry topic; trying again", "topic", rt.retries[d.Tier].topic, "message", m.Position.String(), "err", err)
		if hopeless(err) {
			return p.halt(ctx, rt, m, consumer.Disposition{Err: err})
		}
		if lanes.Sleep(p.s.over, troubles.next()) != nil {
			return lanes.Result{Action: lanes.Retry}
		}
	}
}

// halt ends the consumer, or leaves the partition alone until the next rebalance or start.
func (p *partition) halt(ctx context.Context, rt *route, m *consumer.Message, d consumer.Disposition) lanes.Result {
	p.lanes.Stop() // nothing of this partition begins any more
	if rt.policy.OnHalt == consumer.PausePartition {
		p.s.r.log.ErrorContext(ctx, "partition halted; it is left alone until the next rebalance or start", "message", m.Position.String(), "err", d.Err)
		p.s.r.notePaused(p.tp, d.Err)
		return lanes.Result{Action: lanes.Hold}
	}
	p.s.end(&halt{fmt.Errorf("kafka: halted at %v: %w", m.Position, d.Err)})
	return lanes.Result{Action: lanes.Hold}
}
