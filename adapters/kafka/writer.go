package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

const (
	writeTimeout = 30 * time.Second // for one message, with the client's own attempts
	// batchBytes is what a broker takes at least by default, less what a batch adds.
	batchBytes    = 1<<20 - batchOverhead
	batchOverhead = 512
)

// copies writes copies of messages to one topic. A write is done when every in-sync replica has it. The client is not idempotent: a broker's death can
// write a copy twice, so copies carry their id and are deduplicated like everything else.
type copies struct {
	cluster *cluster
	topic   string
	limit   int    // bytes of a message with its headers, as the topic takes it; 0: the topic is asked
	command string // makes the topic; empty: not known

	mu     sync.Mutex
	writer *kafkago.Writer
	closed bool
}

// newCopies writes to topic. No I/O.
func newCopies(c *cluster, topic string) *copies { return &copies{cluster: c, topic: topic} }

// copiesTo writes to a topic that this consumer has made, or found good. No I/O.
func (c *cluster) copiesTo(s *sideTopic) *copies {
	to := newCopies(c, s.name)
	to.command = s.command(c.brokers[0])
	if s.source.maxMessage > 0 {
		to.limit = s.source.maxMessage + letterRoom - batchOverhead
	}
	return to
}

// open makes the writer once the topic has leaders: a Transport that has seen a topic missing believes it for its metadata's time to live.
func (c *copies) open(ctx context.Context) (*kafkago.Writer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("kafka: write to %q: %w", c.topic, errClosed)
	}
	if c.writer != nil {
		return c.writer, nil
	}
	if _, err := c.cluster.partitions(ctx, []string{c.topic}); err != nil {
		return nil, err
	}
	transport := c.cluster.transport(c.topic)
	if c.limit == 0 {
		configs, err := c.cluster.configs(ctx, &kafkago.Client{Addr: c.cluster.addr, Timeout: requestTimeout, Transport: transport}, []string{c.topic})
		if err != nil {
			c.cluster.drop(transport)
			return nil, err
		}
		c.limit = max(configs[c.topic].maxMessage-batchOverhead, batchBytes)
	}
	c.writer = &kafkago.Writer{
		Addr:         c.cluster.addr,
		Topic:        c.topic,
		Balancer:     &kafkago.Hash{},
		RequiredAcks: kafkago.RequireAll, // the zero value is none at all
		BatchTimeout: 5 * time.Millisecond,
		BatchBytes:   int64(c.limit), // so no neighbour in a batch makes it too large
		MaxAttempts:  3,              // ours come on top
		WriteTimeout: requestTimeout,
		ReadTimeout:  requestTimeout,
		Transport:    transport,
	}
	return c.writer, nil
}

var (
	errClosed = errors.New("closed")
	// errNoUse: writing cannot help until somebody has made the topic or allowed the write.
	errNoUse = errors.New("writing it again cannot help")
)

// write returns nil once the broker has the message. After any other error it may have it too.
func (c *copies) write(ctx context.Context, m kafkago.Message) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := c.try(ctx, m)
	if err != nil && absent(err) { // a broker that has just become a leader may say so too
		if _, wrong := c.cluster.partitions(ctx, []string{c.topic}); wrong != nil {
			err = wrong
		} else {
			err = fmt.Errorf("kafka: write to %q: %v: the brokers do not agree", c.topic, err) //nolint:errorlint // it is there
		}
	}
	switch {
	case err == nil:
		return nil
	case absent(err) && c.command != "":
		return fmt.Errorf("kafka: topic %q does not exist any more: %w: create it: %s", c.topic, errNoUse, c.command)
	case absent(err):
		return fmt.Errorf("%w: %w", errNoUse, err)
	case errors.Is(err, kafkago.TopicAuthorizationFailed):
		return fmt.Errorf("kafka: write to %q: %w: %w; allow this user to Describe and Write the topic", c.topic, errNoUse, err)
	}
	return err
}

func (c *copies) try(ctx context.Context, m kafkago.Message) error {
	w, err := c.open(ctx)
	if err != nil {
		return err
	}
	err = w.WriteMessages(ctx, m)
	var each kafkago.WriteErrors
	if errors.As(err, &each) && len(each) == 1 {
		err = each[0]
	}
	if err != nil {
		return fmt.Errorf("kafka: write to %q: %w", c.topic, err)
	}
	return nil
}

// absent: the topic does not exist, by a broker's word or by kafka-go's own.
func absent(err error) bool {
	return errors.Is(err, kafkago.UnknownTopicOrPartition) || errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition)
}

// hopeless: writing it again cannot help.
func hopeless(err error) bool { return tooLarge(err) || errors.Is(err, errNoUse) }

// tooLarge: the message is larger than the topic takes.
func tooLarge(err error) bool {
	var client kafkago.MessageTooLargeError
	return errors.As(err, &client) || errors.Is(err, kafkago.MessageSizeTooLarge) || errors.Is(err, kafkago.RecordListTooLarge)
}

// close waits for writes that are under way.
func (c *copies) close() error {
	c.mu.Lock()
	w := c.writer
	c.writer, c.closed = nil, true
	c.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Close()
}
