package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

// broker asks a Kafka cluster what reset and check need to know. Not for concurrent use.
type broker struct {
	addr      []string
	client    *kafka.Client
	transport *kafka.Transport
}

const brokerTimeout = 10 * time.Second

// openBroker does no I/O.
func openBroker(addr []string) *broker {
	t := &kafka.Transport{MetadataTTL: 500 * time.Millisecond}
	return &broker{addr: addr, transport: t, client: &kafka.Client{Addr: kafka.TCP(addr...), Timeout: brokerTimeout, Transport: t}}
}

func (b *broker) close() { b.transport.CloseIdleConnections() }

func (b *broker) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("kafka %s: %s: %w", strings.Join(b.addr, ","), op, err)
}

// topics are all topics with their partitions. The error is the clear one when nobody answers at these addresses.
func (b *broker) topics(ctx context.Context) (map[string][]int, error) {
	m, err := b.client.Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return nil, b.wrap("ask for topics", fmt.Errorf("%w; is a broker there, and is --brokers right?", err))
	}
	topics := map[string][]int{}
	for _, t := range m.Topics {
		if t.Error != nil {
			continue // on its way in or out
		}
		topics[t.Name] = []int{}
		for _, p := range t.Partitions {
			topics[t.Name] = append(topics[t.Name], p.ID)
		}
	}
	return topics, nil
}

// requireTopic is the clear error for a topic that reset has not made.
func (s services) requireTopic(ctx context.Context) error {
	b := openBroker(s.Brokers)
	defer b.close()
	topics, err := b.topics(ctx)
	if err == nil && topics[s.Topic] == nil {
		err = b.wrap("look for topic "+s.Topic, errors.New("there is no such topic; run reset first, or correct --topic"))
	}
	return err
}

// recreate deletes the topics of remove that are there, and makes topic with so many partitions. It returns when the new topic has leaders.
func (b *broker) recreate(ctx context.Context, topic string, partitions, replication int, remove func(string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		topics, err := b.topics(ctx)
		if err != nil {
			return false, err
		}
		var old []string
		for name := range topics {
			if remove(name) {
				old = append(old, name)
			}
		}
		if len(old) > 0 {
			res, err := b.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: old})
			if err != nil {
				return false, err
			}
			for name, err := range res.Errors {
				if err != nil && !errors.Is(err, kafka.UnknownTopicOrPartition) {
					return false, fmt.Errorf("delete topic %s: %w", name, err)
				}
			}
			return false, nil // look again until they are gone
		}
		res, err := b.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: replication}}})
		if err != nil {
			return false, err
		}
		if err := res.Errors[topic]; err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			return false, err
		}
		return res.Errors[topic] == nil, nil
	})
	if err == nil {
		err = b.awaitLeaders(ctx, topic, partitions)
	}
	return b.wrap("make topic "+topic+" anew", err)
}

func (b *broker) awaitLeaders(ctx context.Context, topic string, partitions int) error {
	return poll(ctx, func() (bool, error) {
		m, err := b.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil || len(m.Topics) != 1 || m.Topics[0].Error != nil || len(m.Topics[0].Partitions) != partitions {
			return false, ctx.Err()
		}
		return !slices.ContainsFunc(m.Topics[0].Partitions, func(p kafka.Partition) bool { return p.Error != nil }), nil
	})
}

// forgetGroup deletes a group with its offsets. It waits for members that have just left or died.
func (b *broker) forgetGroup(ctx context.Context, group string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var last error
	err := poll(ctx, func() (bool, error) {
		res, err := b.client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
		if err == nil {
			err = res.Errors[group]
		}
		if errors.Is(err, kafka.GroupIdNotFound) {
			err = nil
		}
		last = err
		return err == nil, nil
	})
	if errors.Is(last, kafka.NonEmptyGroup) {
		return b.wrap("forget group "+group, errors.New("it still has members; stop its consumers first"))
	}
	return b.wrap("forget group "+group, errors.Join(err, last))
}

// span is what a partition holds and how far a group has come in it.
type span struct {
	partition  int
	first, end int64 // offsets of the first record and of the next one to be written
	committed  int64 // of the group; first when it has none
}

// spans asks for each partition of a topic. group may be empty.
func (b *broker) spans(ctx context.Context, topic string, partitions []int, group string) ([]span, error) {
	var ends []kafka.PartitionOffsets
	err := b.patiently(ctx, func() (err error) {
		ends, err = b.ends(ctx, topic, partitions)
		return err
	})
	if err != nil {
		return nil, b.wrap("ask for offsets of topic "+topic, err)
	}
	committed := map[int]int64{}
	if group != "" {
		err := b.patiently(ctx, func() (err error) {
			committed, err = b.committed(ctx, topic, partitions, group)
			return err
		})
		if err != nil {
			return nil, b.wrap("ask for offsets of group "+group, err)
		}
	}
	var spans []span
	for _, p := range ends {
		s := span{partition: p.Partition, first: p.FirstOffset, end: p.LastOffset, committed: p.FirstOffset}
		if c, ok := committed[p.Partition]; ok && c > s.first {
			s.committed = c
		}
		spans = append(spans, s)
	}
	return spans, nil
}

func (b *broker) ends(ctx context.Context, topic string, partitions []int) ([]kafka.PartitionOffsets, error) {
	var reqs []kafka.OffsetRequest
	for _, p := range partitions {
		reqs = append(reqs, kafka.FirstOffsetOf(p), kafka.LastOffsetOf(p))
	}
	res, err := b.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: reqs}})
	if err != nil {
		return nil, err
	}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return nil, p.Error
		}
	}
	return res.Topics[topic], nil
}

// committed has an entry for each partition in which group has committed something, or -1.
func (b *broker) committed(ctx context.Context, topic string, partitions []int, group string) (map[int]int64, error) {
	res, err := b.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: partitions}})
	if err == nil {
		err = res.Error
	}
	if errors.Is(err, kafka.GroupIdNotFound) {
		return nil, nil // nothing committed yet
	}
	if err != nil {
		return nil, err
	}
	offsets := map[int]int64{}
	for _, p := range res.Topics[topic] {
		if p.Error != nil {
			return nil, p.Error
		}
		offsets[p.Partition] = p.CommittedOffset
	}
	return offsets, nil
}

// patiently repeats what a broker cannot answer for the moment: leaders and coordinators of new topics and groups take a while.
func (b *broker) patiently(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	var last error
	err := poll(ctx, func() (bool, error) {
		last = ask()
		var k kafka.Error
		if errors.As(last, &k) && k.Temporary() {
			return false, nil
		}
		return true, nil
	})
	if last != nil {
		return last
	}
	return err
}

// pending counts the records that group has not acknowledged, in topic and in the group's retry topics.
func (b *broker) pending(ctx context.Context, topic, group string) (int64, error) {
	topics, err := b.topics(ctx)
	if err != nil {
		return 0, err
	}
	var n int64
	for name, partitions := range topics {
		if name != topic && !isRetryTopic(group, name) {
			continue
		}
		spans, err := b.spans(ctx, name, partitions, group)
		if err != nil {
			return 0, err
		}
		for _, s := range spans {
			n += s.end - s.committed
		}
	}
	return n, nil
}

// isRetryTopic knows the names that adapters/kafka gives to the retry topics of a group.
func isRetryTopic(group, topic string) bool { return strings.HasPrefix(topic, group+".retry.") }

// rewind makes a group without members read topic from its first record again.
func (b *broker) rewind(ctx context.Context, topic, group string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	topics, err := b.topics(ctx)
	if err != nil {
		return err
	}
	spans, err := b.spans(ctx, topic, topics[topic], "")
	if err != nil {
		return err
	}
	var offsets []kafka.OffsetCommit
	for _, s := range spans {
		offsets = append(offsets, kafka.OffsetCommit{Partition: s.partition, Offset: s.first})
	}
	var last error
	err = poll(ctx, func() (bool, error) {
		res, err := b.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: group, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: offsets}})
		if last = err; err != nil {
			return false, nil
		}
		for _, p := range res.Topics[topic] {
			if p.Error != nil { // a member that was killed counts until its session ends
				last = p.Error
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return b.wrap("rewind group "+group, errors.Join(err, last))
	}
	return nil
}

// records yields what topic holds now, from its first record on.
func (b *broker) records(ctx context.Context, topic string, partitions []int) iter.Seq2[kafka.Message, error] {
	return func(yield func(kafka.Message, error) bool) {
		spans, err := b.spans(ctx, topic, partitions, "")
		if err != nil {
			yield(kafka.Message{}, err)
			return
		}
		for _, s := range spans {
			if !b.partition(ctx, topic, s, yield) {
				return
			}
		}
	}
}

// partition yields the records of a span; false: that was all that is wanted.
func (b *broker) partition(ctx context.Context, topic string, s span, yield func(kafka.Message, error) bool) bool {
	for next := s.first; next < s.end; {
		var some []kafka.Message
		err := b.patiently(ctx, func() (err error) {
			some, err = b.fetch(ctx, topic, s.partition, next)
			return err
		})
		if err != nil {
			yield(kafka.Message{}, b.wrap("read topic "+topic, err))
			return false
		}
		for _, m := range some {
			if next = m.Offset + 1; m.Offset < s.end && !yield(m, nil) {
				return false
			}
		}
	}
	return true
}

// fetch returns some records from offset on; at least one, or an error.
func (b *broker) fetch(ctx context.Context, topic string, partition int, offset int64) (some []kafka.Message, err error) {
	res, err := b.client.Fetch(ctx, &kafka.FetchRequest{Topic: topic, Partition: partition, Offset: offset, MinBytes: 1, MaxBytes: 8 << 20, MaxWait: time.Second})
	if err == nil {
		err = res.Error
	}
	for err == nil {
		var r *kafka.Record
		if r, err = res.Records.ReadRecord(); err != nil {
			break
		}
		m := kafka.Message{Topic: topic, Partition: partition, Offset: r.Offset, Headers: r.Headers}
		if r.Key != nil {
			r.Key.Close() //nolint:errcheck // memory given back
		}
		if r.Value != nil {
			m.Value, err = kafka.ReadAll(r.Value)
			r.Value.Close() //nolint:errcheck // memory given back
		}
		if r.Offset >= offset { // a batch may begin earlier
			some = append(some, m)
		}
	}
	if err != io.EOF {
		return nil, err
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("no record in partition %d from offset %d on, although there should be: %w", partition, offset, kafka.RequestTimedOut)
	}
	return some, nil
}

// orderID is the business id of a record; empty when it has none.
func orderID(m kafka.Message) string {
	for _, h := range slices.Backward(m.Headers) {
		if h.Key == idHeader {
			return string(h.Value)
		}
	}
	return ""
}

// poll asks done every tenth of a second until it says yes, fails, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
