package rocketmq

import (
	"context"
	"crypto/rand"
	"math"

	rmq "github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// client is the client's push consumer, started at most once.
type client struct {
	Start, Shutdown func() error
	Suspend, Resume func()
	// committed are this member's queues, and where the next owner would begin; below 0: unknown.
	committed func() map[primitive.MessageQueue]int64
	// unsettled is how many messages it has whose results it has not noted.
	unsettled func() int
}

// newClient makes a push consumer whose deliveries all go to r.consume.
func newClient(r *run) (*client, error) {
	addrs := make(primitive.NamesrvAddr, len(r.cfg.NameServers))
	for i, s := range r.cfg.NameServers {
		addrs[i] = "http://" + s // host names are refused without it
	}
	from := rmq.ConsumeFromFirstOffset
	if r.cfg.Start == Latest {
		from = rmq.ConsumeFromLastOffset
	}
	options := []rmq.Option{
		rmq.WithNameServer(addrs),
		rmq.WithGroupName(r.cfg.resource(r.cfg.Group)),
		rmq.WithInstance("idemq-" + rand.Text()), // those with the same name share one client
		rmq.WithConsumerModel(rmq.Clustering),
		rmq.WithConsumerOrder(r.cfg.Orderly),
		rmq.WithConsumeFromWhere(from),
		rmq.WithAutoCommit(true),
		rmq.WithConsumeMessageBatchMaxSize(1),    // we batch ourselves
		rmq.WithMaxReconsumeTimes(math.MaxInt32), // the guard counts
		rmq.WithConsumeTimeout(r.cfg.ConsumeTimeout),
		rmq.WithConsumeConcurrentlyMaxSpan(r.cfg.MaxAhead),
		// More goroutines than messages can be here: each delivery waits in one, and the real limit is our pool. With fewer, messages would be in
		// a channel of the client's when it is closed.
		rmq.WithConsumeGoroutineNums(100_000),
		rmq.WithPullBatchSize(32),
		// The thresholds of a topic are divided by the number of queues and overwrite those of a queue.
		rmq.WithPullThresholdForTopic(r.cfg.MaxWaiting),
		rmq.WithPullThresholdSizeForTopic(64),
	}
	if k := r.cfg.Credentials; k.AccessKey != "" {
		options = append(options, rmq.WithCredentials(primitive.Credentials{AccessKey: k.AccessKey, SecretKey: k.SecretKey, SecurityToken: k.SecurityToken}))
	}
	if r.cfg.UnverifiedTLS {
		options = append(options, rmq.WithTls(true)) // false would switch it off for the whole process
	}
	p, err := rmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	for _, rt := range r.routes {
		for _, t := range rt.topics {
			err := p.Subscribe(r.cfg.resource(t), selector(r.cfg.Filters[t]), func(ctx context.Context, ms ...*primitive.MessageExt) (rmq.ConsumeResult, error) {
				return r.consume(ctx, rt, ms), nil // an error would have the client log the payload
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return &client{
		Start: p.Start, Shutdown: p.Shutdown, Suspend: p.Suspend, Resume: p.Resume,
		committed: func() map[primitive.MessageQueue]int64 {
			out := map[primitive.MessageQueue]int64{}
			for q, info := range p.GetConsumerRunningInfo(false).MQTable {
				out[q] = info.CommitOffset
			}
			return out
		},
		unsettled: func() (n int) {
			for _, info := range p.GetConsumerRunningInfo(false).MQTable {
				if r.cfg.Orderly {
					n += info.TransactionMsgCount // others it has not given out
				} else {
					n += info.CachedMsgCount
				}
			}
			return n
		},
	}, nil
}

func selector(f Filter) rmq.MessageSelector {
	switch {
	case f.SQL != "":
		return rmq.MessageSelector{Type: rmq.SQL92, Expression: f.SQL}
	case f.Tags != "":
		return rmq.MessageSelector{Type: rmq.TAG, Expression: f.Tags}
	}
	return rmq.MessageSelector{}
}
