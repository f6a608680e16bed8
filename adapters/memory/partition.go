package memory

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/lanes"
	"github.com/idemq/idemq/internal/retrytopic"
)

// partition is one that a consumer owns.
type partition struct {
	c      *Consumer
	tp     topicPartition
	start  int64
	epoch  int
	delay  time.Duration // of a retry topic
	retry  bool
	lanes  *lanes.Partition[*consumer.Message]
	cancel context.CancelFunc // of the goroutines
	wg     sync.WaitGroup
}

func newPartition(ctx context.Context, c *Consumer, tp topicPartition, offset int64, epoch int) *partition {
	p := &partition{c: c, tp: tp, start: offset, epoch: epoch}
	p.delay, p.retry = retrytopic.Delay(c.cfg.Group, tp.topic)
	policy, batch := c.pipe.Policy(), c.pipe.Batch()
	if p.retry {
		batch = consumer.Batch{}
	}
	p.lanes = lanes.NewPartition(ctx, c.pool, lanes.Config[*consumer.Message]{
		Run: p.process, MaxAge: c.pipe.Guard().Retention() / 2, Unordered: policy.Order == consumer.OrderNone,
		BatchMax: batch.Max, BatchWait: batch.Wait,
	})
	owned, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	p.wg.Go(func() { p.fetch(owned) })
	p.wg.Go(func() { p.commits(owned) })
	return p
}

// fetch brings records into the lanes. One of a retry topic waits here until it is due, and with it all behind it, which are due later.
func (p *partition) fetch(ctx context.Context) {
	for offset := p.start; ; offset++ {
		if p.lanes.WaitRoom(ctx) != nil {
			return
		}
		r, err := p.c.cfg.Broker.next(ctx, p.tp, offset)
		if err != nil {
			return
		}
		if p.retry && lanes.Sleep(ctx, time.Until(r.at.Add(p.delay))) != nil {
			return
		}
		m := r.message(p.tp, offset)
		m.OwnRetry = p.retry
		p.lanes.Deliver(offset, m.Key, m)
	}
}

// commits follows the watermark.
func (p *partition) commits(ctx context.Context) {
	for {
		ended := p.lanes.Ended()
		p.commit()
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
	}
}

// process runs messages through the pipeline and obeys.
func (p *partition) process(ctx context.Context, ms []*consumer.Message) []lanes.Result {
	var ds []consumer.Disposition
	if len(ms) == 1 {
		ds = []consumer.Disposition{p.c.pipe.Process(ctx, ms[0], p.c.letters)}
	} else {
		ds = p.c.pipe.ProcessBatch(ctx, ms, p.c.letters)
	}
	results := make([]lanes.Result, len(ms))
	for i, d := range ds {
		results[i] = p.obey(ctx, ms[i], d)
	}
	return results
}

func (p *partition) obey(ctx context.Context, m *consumer.Message, d consumer.Disposition) lanes.Result {
	policy := p.c.pipe.Policy()
	switch {
	case d.Action == consumer.Ack:
		return lanes.Result{Action: lanes.Settle, Block: d.Letter && policy.AfterLetter == consumer.Block}
	case d.Action == consumer.Halt:
		p.lanes.Stop()
		err := fmt.Errorf("memory: halted at %v: %w", m.Position, d.Err)
		if policy.OnHalt == consumer.StopRunner {
			p.c.halt(err)
		} else {
			p.c.cfg.Logger.ErrorContext(ctx, "partition halted; it is left alone until the next rebalance or start", "err", err)
		}
		return lanes.Result{Action: lanes.Hold}
	case d.Why == consumer.Outage:
		p.c.gate.Outage(d.Err)
	case d.Why == consumer.Failed && d.Tier >= 0:
		// The source is settled only after its copy is stored. The pipeline's context may have ended by now; the copy is written all the same.
		retry := Message{Key: m.Key, Value: m.Value, Headers: consumer.RetryHeaders(m, d)}
		if _, err := p.c.cfg.Broker.Publish(context.WithoutCancel(ctx), retrytopic.Name(p.c.cfg.Group, policy.Retry.Tiers[d.Tier]), retry); err == nil {
			return lanes.Result{Action: lanes.Settle}
		}
	}
	return lanes.Result{Action: lanes.Retry, After: d.After}
}

// drain ends the partition: stop fetching, end what runs. The offset is final then.
func (p *partition) drain(ctx context.Context) error {
	p.cancel()
	p.wg.Wait()
	timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.c.pipe.Policy().DrainTimeout)
	defer cancel()
	if err := p.lanes.Drain(timeout, p.c.pipe.Guard().StopGrace()); err != nil {
		return fmt.Errorf("memory: partition %s/%d: %w", p.tp.topic, p.tp.partition, err)
	}
	return nil
}

// settledTo is the offset below which everything is settled.
func (p *partition) settledTo() int64 {
	if offset, ok := p.lanes.Commit(); ok {
		return offset
	}
	return p.start
}

func (p *partition) commit() { p.c.cfg.Broker.commit(p.c, p.tp, p.settledTo(), p.epoch) }
