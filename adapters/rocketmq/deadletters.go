package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strconv"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/remoting"
)

// letterWriter is where dead letters go.
type letterWriter struct {
	cluster *cluster
	topic   string // its name in the cluster
	log     *slog.Logger
}

// Publish writes the letter. One whose properties are too large loses the text of its error; if they still are, trying again cannot help.
func (l *letterWriter) Publish(ctx context.Context, d consumer.DeadLetter) error {
	err := l.cluster.send(ctx, l.log, l.topic, d.Message, withBroker(consumer.LetterHeaders(d, true), d.Message))
	if errors.Is(err, errTooLarge) || remoting.IsCode(err, remoting.MessageIllegal) {
		err = l.cluster.send(ctx, l.log, l.topic, d.Message, withBroker(consumer.LetterHeaders(d, false), d.Message))
	}
	if err != nil && refusedForGood(err) {
		return fmt.Errorf("%w: %w", consumer.ErrLetterRefused, err)
	}
	return err
}

// DeadLetterQueue is a dead-letter topic. Safe for concurrent use.
type DeadLetterQueue struct {
	cfg     Config
	cluster *cluster
	letters *letterWriter
}

var _ consumer.DeadLetterQueue = (*DeadLetterQueue)(nil)

// OpenDeadLetters uses the connection part of cfg. It checks cfg and does no I/O. topic is "%DLQ%<group>" unless the policy names another.
// Close it at the end.
func OpenDeadLetters(cfg Config, topic string) (*DeadLetterQueue, error) {
	var p problems
	p.connection(&cfg)
	p.topic("topic of OpenDeadLetters", topic)
	if err := errors.Join(p...); err != nil {
		return nil, err
	}
	c := newCluster(cfg)
	return &DeadLetterQueue{cfg: cfg, cluster: c, letters: &letterWriter{c, cfg.resource(topic), cfg.Logger}}, nil
}

// Publish returns nil once a broker has stored the letter, with headers that say where the message came from, why it died, after how
// many attempts and when. A broker that stored it and could not yet make it as safe as it is set up to (SYNC_FLUSH or SYNC_MASTER timed out)
// counts as having stored it, and is logged. An error that wraps consumer.ErrLetterRefused cannot be helped by trying again; after any
// other the letter may have been written.
func (q *DeadLetterQueue) Publish(ctx context.Context, d consumer.DeadLetter) error {
	return q.letters.Publish(ctx, d)
}

// List yields what is stored now, queue by queue in the order of offsets, and ends. Nothing is removed, and no offset is committed. A letter whose
// headers are damaged comes with an error, and the list goes on: so do letters that the broker itself or another client wrote to a %DLQ% topic. Any
// other error ends it.
func (q *DeadLetterQueue) List(ctx context.Context) iter.Seq2[consumer.DeadLetter, error] {
	return func(yield func(consumer.DeadLetter, error) bool) {
		if err := q.list(ctx, yield); err != nil {
			yield(consumer.DeadLetter{}, fmt.Errorf("rocketmq: list %q: %w", q.letters.topic, err))
		}
	}
}

func (q *DeadLetterQueue) list(ctx context.Context, yield func(consumer.DeadLetter, error) bool) error {
	at, err := q.cluster.route(ctx, q.letters.topic)
	if err != nil {
		return err
	}
	if len(at.read) == 0 {
		return errors.New("no queue may be read; give the topic perm 6")
	}
	for _, queue := range at.read {
		addr := at.brokers[queue.Broker]
		if addr == "" {
			return fmt.Errorf("broker %s has no master", queue.Broker)
		}
		more, err := q.listQueue(ctx, addr, queue, yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (q *DeadLetterQueue) listQueue(ctx context.Context, addr string, queue Queue, yield func(consumer.DeadLetter, error) bool) (more bool, err error) {
	next, err := q.cluster.offset(ctx, addr, remoting.GetMinOffset, queue)
	if err != nil {
		return false, err
	}
	end, err := q.cluster.offset(ctx, addr, remoting.GetMaxOffset, queue)
	if err != nil {
		return false, err
	}
	for next < end {
		ms, after, err := q.cluster.pull(ctx, addr, queue, next)
		if err != nil {
			return false, err
		}
		for _, raw := range ms {
			if raw.QueueOffset >= end {
				return true, nil
			}
			raw.Queue.BrokerName = queue.Broker
			m := FromRocketMQ(raw)
			m.Topic = q.cfg.shown(m.Topic)
			d, err := consumer.ParseLetter(m)
			if err != nil {
				err = fmt.Errorf("rocketmq: letter at %v of %s: %w", m.Position, queue.Broker, err)
			}
			if !yield(d, err) {
				return false, nil
			}
		}
		if after <= next {
			return false, fmt.Errorf("queue %v does not go on after offset %d", queue, next)
		}
		next = after
	}
	return true, nil
}

// toolsGroup is there on every broker, for tools.
const toolsGroup = "TOOLS_CONSUMER"

// hasSubscription says that the request brings its filter along, as no consumer has registered one.
const hasSubscription = 1 << 2

// pull reads some messages, and tells the offset after them. There may be none, where retention was quicker.
func (c *cluster) pull(ctx context.Context, addr string, q Queue, offset int64) ([]*primitive.MessageExt, int64, error) {
	r, err := c.call(ctx, addr, remoting.PullMessage, map[string]string{
		"consumerGroup": toolsGroup, "topic": q.Topic, "queueId": strconv.Itoa(q.ID), "queueOffset": strconv.FormatInt(offset, 10),
		"maxMsgNums": "32", "sysFlag": strconv.Itoa(hasSubscription), "commitOffset": "0", "suspendTimeoutMillis": "0",
		"subscription": "*", "subVersion": "0", "expressionType": "TAG",
	}, nil)
	if err != nil {
		if remoting.IsCode(err, remoting.PullNotFound, remoting.PullRetry, remoting.PullOffsetMoved) {
			return nil, offset, fmt.Errorf("offset %d: %w", offset, err)
		}
		return nil, 0, err
	}
	next, err := strconv.ParseInt(r.Fields["nextBeginOffset"], 10, 64)
	if err != nil {
		return nil, 0, err
	}
	return primitive.DecodeMessage(r.Body), next, nil
}

// Resend writes the message to its origin topic, marked for the scope that buried it, and returns once a broker has it. A copy too many
// is a duplicate that meets Done.
func (q *DeadLetterQueue) Resend(ctx context.Context, d consumer.DeadLetter) error {
	if d.Message == nil || d.Message.Origin.Topic == "" {
		return fmt.Errorf("rocketmq: resend a letter of %q: it does not say where the message came from", q.letters.topic)
	}
	return q.cluster.send(ctx, q.cfg.Logger, q.cfg.resource(d.Message.Origin.Topic), d.Message, consumer.ResendHeaders(d))
}

// Close closes all connections; what is under way fails. It may be called again.
func (q *DeadLetterQueue) Close() error {
	q.cluster.close()
	return nil
}
