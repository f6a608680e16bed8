package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/broadcast"
)

// DefaultPartitions is how many partitions a topic gets that is made by its first message.
const DefaultPartitions = 4

// Broker keeps topics. Safe for concurrent use.
type Broker struct {
	mu      sync.Mutex
	topics  map[string]*topic
	groups  map[string]*group
	changed broadcast.Signal // of anything
}

type topic struct {
	partitions [][]record
	next       int // partition of the next message without a key
}

type record struct {
	key, value []byte
	headers    consumer.Headers
	at         time.Time
}

// Message is what a producer sends. A nil Key is no key: partitions take turns.
type Message struct {
	Key     []byte
	Value   []byte
	Headers consumer.Headers
}

// NewMessage is a message with its id in the header "msg_id", for consumer.IDFromHeader("msg_id").
func NewMessage(id, body string) Message {
	return Message{Value: []byte(body), Headers: consumer.Headers{{Name: "msg_id", Value: []byte(id)}}}
}

// NewBroker returns a broker without topics.
func NewBroker() *Broker {
	return &Broker{topics: map[string]*topic{}, groups: map[string]*group{}}
}

// CreateTopic makes a topic with n partitions, at least one. An error if it is there.
func (b *Broker) CreateTopic(name string, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case name == "" || n < 1:
		return fmt.Errorf("memory: create topic %q with %d partitions: want a name and at least one partition", name, n)
	case b.topics[name] != nil:
		return fmt.Errorf("memory: create topic %q: it is there already", name)
	}
	b.topics[name] = &topic{partitions: make([][]record, n)}
	b.changed.Fire()
	return nil
}

// Publish appends messages, in their order, and makes the topic if it is not there. It copies what it is given and returns where each message lies. An
// error, and nothing is published, when ctx has ended or the topic has no name.
func (b *Broker) Publish(ctx context.Context, name string, ms ...Message) ([]consumer.Position, error) {
	err := ctx.Err()
	if name == "" {
		err = errors.New("topic has no name")
	}
	if err != nil {
		return nil, fmt.Errorf("memory: publish to %q: %w", name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil {
		t = &topic{partitions: make([][]record, DefaultPartitions)}
		b.topics[name] = t
	}
	at := make([]consumer.Position, len(ms))
	for i, m := range ms {
		p := t.partitionOf(m.Key)
		at[i] = consumer.Position{Topic: name, Partition: int32(p), Offset: int64(len(t.partitions[p]))}
		t.partitions[p] = append(t.partitions[p], record{slices.Clone(m.Key), slices.Clone(m.Value), copied(m.Headers), time.Now()})
	}
	b.changed.Fire()
	return at, nil
}

func (t *topic) partitionOf(key []byte) int {
	if key == nil {
		t.next++
		return (t.next - 1) % len(t.partitions)
	}
	h := fnv.New32a()
	h.Write(key) //nolint:errcheck // a hash never returns an error
	return int(h.Sum32() % uint32(len(t.partitions)))
}

func copied(h consumer.Headers) consumer.Headers {
	h = slices.Clone(h)
	for i := range h {
		h[i].Value = slices.Clone(h[i].Value)
	}
	return h
}

// Messages returns what lies in a topic, partition after partition, as a consumer would get it: for tests. Empty for an unknown topic.
func (b *Broker) Messages(name string) []*consumer.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []*consumer.Message
	if t := b.topics[name]; t != nil {
		for p, records := range t.partitions {
			for o, r := range records {
				all = append(all, r.message(topicPartition{name, p}, int64(o)))
			}
		}
	}
	return all
}

func (r record) message(tp topicPartition, offset int64) *consumer.Message {
	return &consumer.Message{
		Position: consumer.Position{Topic: tp.topic, Partition: int32(tp.partition), Offset: offset},
		Key:      slices.Clone(r.key), Value: slices.Clone(r.value), Headers: copied(r.headers), SentAt: r.at, Redeliveries: -1,
	}
}

// next waits for the record at offset. An error when ctx ends.
func (b *Broker) next(ctx context.Context, tp topicPartition, offset int64) (record, error) {
	for {
		b.mu.Lock()
		records := b.topics[tp.topic].partitions[tp.partition]
		changed := b.changed.Wait()
		b.mu.Unlock()
		if offset < int64(len(records)) {
			return records[offset], ctx.Err()
		}
		select {
		case <-ctx.Done():
			return record{}, ctx.Err()
		case <-changed:
		}
	}
}
