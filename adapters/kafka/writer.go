package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
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
	limit   int // bytes of a message with its headers, as the topic takes it; 0: the usual

	mu     sync.Mutex
	writer *kafkago.Writer
	closed bool
}

// newCopies writes to topic, whose sources have messages of up to sourceMax bytes; 0: not known. No I/O.
func newCopies(c *cluster, topic string, sourceMax int) *copies {
	limit := batchBytes
	if sourceMax > 0 {
		limit = sourceMax + letterRoom - batchOverhead
	}
	return &copies{cluster: c, topic: topic, limit: limit}
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
		Transport:    c.cluster.transport(c.topic),
	}
	return c.writer, nil
}

var errClosed = errors.New("closed")

// write returns nil once the broker has the message. After any other error it may have it too.
func (c *copies) write(ctx context.Context, m kafkago.Message) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
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

// tooLarge: writing it again cannot help.
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
