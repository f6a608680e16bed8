package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/lanes"
)

// letterWriter is where a consumer's dead letters go.
type letterWriter struct{ to *copies }

// Topic is where the letters go, for the pipeline's log.
func (l *letterWriter) Topic() string { return l.to.topic }

// Publish writes the letter. One that is too large loses the text of its error; if it still is, trying again cannot help. Nor can it when
// the topic is gone: making it is for the next start, or for an operator.
func (l *letterWriter) Publish(ctx context.Context, d consumer.DeadLetter) error {
	err := l.to.write(ctx, copyOf(d.Message, consumer.LetterHeaders(d, true)))
	if err != nil && tooLarge(err) {
		err = l.to.write(ctx, copyOf(d.Message, consumer.LetterHeaders(d, false)))
	}
	switch {
	case err == nil:
		return nil
	case tooLarge(err):
		return fmt.Errorf("%w: %w; raise max.message.bytes of %q", consumer.ErrLetterRefused, err, l.to.topic)
	case hopeless(err):
		return fmt.Errorf("%w: %w", consumer.ErrLetterRefused, err)
	}
	return err
}

// DeadLetterQueue is a dead-letter topic. Safe for concurrent use.
type DeadLetterQueue struct {
	cfg     Config
	topic   string
	cluster *cluster
	letters *letterWriter

	mu      sync.Mutex
	origins map[string]*copies // of Resend, by topic
	closed  bool
}

var _ consumer.DeadLetterQueue = (*DeadLetterQueue)(nil)

// OpenDeadLetters uses the connection part of cfg. It checks cfg and does no I/O. topic is "<group>.dlq" unless the policy names another.
// Close it at the end.
func OpenDeadLetters(cfg Config, topic string) (*DeadLetterQueue, error) {
	var p problems
	p.connection(&cfg)
	p.topic("topic of OpenDeadLetters", topic)
	if err := errors.Join(p...); err != nil {
		return nil, err
	}
	c := newCluster(cfg)
	return &DeadLetterQueue{cfg: cfg, topic: topic, cluster: c, letters: &letterWriter{newCopies(c, topic)}, origins: map[string]*copies{}}, nil
}

// Topic is where the letters are.
func (q *DeadLetterQueue) Topic() string { return q.topic }

// Publish returns nil once every in-sync replica has the letter, with headers that say where the message came from, why it died, after how
// many attempts and when. An error that wraps consumer.ErrLetterRefused cannot be helped by trying again; after any other the letter may
// have been written.
func (q *DeadLetterQueue) Publish(ctx context.Context, d consumer.DeadLetter) error {
	return q.letters.Publish(ctx, d)
}

// List yields what is stored now, partition by partition in the order of offsets, and ends. Nothing is removed, and no offset is committed. A letter whose
// headers are damaged comes with an error, and the list goes on; any other error ends it.
func (q *DeadLetterQueue) List(ctx context.Context) iter.Seq2[consumer.DeadLetter, error] {
	return func(yield func(consumer.DeadLetter, error) bool) {
		if err := q.list(ctx, yield); err != nil {
			yield(consumer.DeadLetter{}, fmt.Errorf("kafka: list %q: %w", q.topic, err))
		}
	}
}

func (q *DeadLetterQueue) list(ctx context.Context, yield func(consumer.DeadLetter, error) bool) error {
	counts, err := q.cluster.partitions(ctx, []string{q.topic})
	if err != nil {
		return err
	}
	transport := q.cluster.transport(q.topic)
	defer q.cluster.drop(transport)
	client := &kafkago.Client{Addr: q.cluster.addr, Timeout: requestTimeout, Transport: transport}
	tps := make([]TopicPartition, counts[q.topic])
	for i := range tps {
		tps[i] = TopicPartition{q.topic, i}
	}
	ends, err := listBounds(ctx, client, tps)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		more, err := q.listPartition(ctx, transport, tp, ends[tp], yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (q *DeadLetterQueue) listPartition(ctx context.Context, rt roundTripper, tp TopicPartition, b bounds, yield func(consumer.DeadLetter, error) bool) (more bool, err error) {
	var troubles backoff
	for offset := b.first; offset < b.end; {
		f, err := fetchOnce(ctx, rt, q.cluster.addr, tp.Topic, tp.Partition, offset, partitionMaxBytes, nil)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, kafkago.OffsetOutOfRange): // retention was quicker
			return true, nil
		case err != nil && troubles.wait >= maxTrouble:
			return false, err
		case err != nil:
			if err := lanes.Sleep(ctx, troubles.next()); err != nil {
				return false, err
			}
			continue
		}
		troubles.reset()
		for i := range f.records {
			if f.records[i].offset >= b.end {
				return true, nil
			}
			d, err := consumer.ParseLetter(messageOf(tp, &f.records[i]))
			if err != nil {
				err = fmt.Errorf("kafka: letter at %v: %w", d.Message.Position, err)
			}
			if !yield(d, err) {
				return false, nil
			}
		}
		offset = f.next
	}
	return true, nil
}

// Resend writes the message to its origin topic, marked for the scope that buried it, and returns once every in-sync replica has it. A copy too many
// is a duplicate that meets Done. The mark takes some room: a message that was as large as the topic allows is refused until
// the topic's max.message.bytes is raised.
func (q *DeadLetterQueue) Resend(ctx context.Context, d consumer.DeadLetter) error {
	if d.Message == nil || d.Message.Origin.Topic == "" {
		return fmt.Errorf("kafka: resend a letter of %q: it does not say where the message came from", q.topic)
	}
	c, err := q.origin(d.Message.Origin.Topic)
	if err != nil {
		return err
	}
	return c.write(ctx, copyOf(d.Message, consumer.ResendHeaders(d)))
}

func (q *DeadLetterQueue) origin(topic string) (*copies, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, fmt.Errorf("kafka: resend to %q: %w", topic, errClosed)
	}
	if q.origins[topic] == nil {
		q.origins[topic] = newCopies(q.cluster, topic)
	}
	return q.origins[topic], nil
}

// Close waits for writes that are under way and closes all connections. It may be called again.
func (q *DeadLetterQueue) Close() error {
	q.mu.Lock()
	q.closed = true
	origins := make([]*copies, 0, len(q.origins))
	for _, c := range q.origins {
		origins = append(origins, c)
	}
	q.mu.Unlock()
	slices.SortFunc(origins, func(a, b *copies) int { return cmp.Compare(a.topic, b.topic) })
	errs := []error{q.letters.to.close()}
	for _, c := range origins {
		errs = append(errs, c.close())
	}
	q.cluster.close()
	return errors.Join(errs...)
}
