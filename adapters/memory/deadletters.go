package memory

import (
	"context"
	"iter"

	"github.com/idemq/idemq/consumer"
)

// DeadLetterTopic is where a group's dead letters go unless the policy names a topic.
func DeadLetterTopic(group string) string { return group + ".dlq" }

// DeadLetterQueue is a topic of dead letters. Safe for concurrent use.
type DeadLetterQueue struct {
	broker *Broker
	topic  string
}

var _ consumer.DeadLetterQueue = (*DeadLetterQueue)(nil)

// OpenDeadLetters is for tools and tests; a Consumer has its own. The topic need not be there yet.
func OpenDeadLetters(b *Broker, topic string) *DeadLetterQueue { return &DeadLetterQueue{b, topic} }

// Topic is where the letters are.
func (q *DeadLetterQueue) Topic() string { return q.topic }

// Publish stores a letter.
func (q *DeadLetterQueue) Publish(ctx context.Context, d consumer.DeadLetter) error {
	m := Message{Key: d.Message.Key, Value: d.Message.Value, Headers: consumer.LetterHeaders(d, true)}
	_, err := q.broker.Publish(ctx, q.topic, m)
	return err
}

// List yields what is stored now. Nothing is removed.
func (q *DeadLetterQueue) List(ctx context.Context) iter.Seq2[consumer.DeadLetter, error] {
	return func(yield func(consumer.DeadLetter, error) bool) {
		for _, m := range q.broker.Messages(q.topic) {
			if ctx.Err() != nil {
				yield(consumer.DeadLetter{}, context.Cause(ctx))
				return
			}
			if d, err := consumer.ParseLetter(m); !yield(d, err) {
				return
			}
		}
	}
}

// Resend sends the message to its original topic again, marked.
func (q *DeadLetterQueue) Resend(ctx context.Context, d consumer.DeadLetter) error {
	m := Message{Key: d.Message.Key, Value: d.Message.Value, Headers: consumer.ResendHeaders(d)}
	_, err := q.broker.Publish(ctx, d.Message.Origin.Topic, m)
	return err
}
