package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/retrytopic"
)

type topicPartition struct {
	topic     string
	partition int
}

func (tp topicPartition) compare(o topicPartition) int {
	return cmp.Or(cmp.Compare(tp.topic, o.topic), cmp.Compare(tp.partition, o.partition))
}

// group is a consumer group. Guarded by the broker's mutex. Each partition has at most one owner: a member gives up what it should not have
// any more, when it is drained, and takes what is free.
type group struct {
	name      string
	members   []*Consumer // in the order in which they joined
	owners    map[topicPartition]*Consumer
	committed map[topicPartition]int64
	epochs    map[topicPartition]int // grows when the offset is set from outside
}

// groupOf is called with b.mu held.
func (b *Broker) groupOf(name string) *group {
	g := b.groups[name]
	if g == nil {
		g = &group{name: name, owners: map[topicPartition]*Consumer{}, committed: map[topicPartition]int64{}, epochs: map[topicPartition]int{}}
		b.groups[name] = g
	}
	return g
}

func (b *Broker) join(c *Consumer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groupOf(c.cfg.Group)
	g.members = append(g.members, c)
	b.changed.Fire()
}

// leave gives up all that c still owns.
func (b *Broker) leave(c *Consumer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groupOf(c.cfg.Group)
	g.members = slices.DeleteFunc(g.members, func(m *Consumer) bool { return m == c })
	for tp, owner := range g.owners {
		if owner == c {
			delete(g.owners, tp)
		}
	}
	b.changed.Fire()
}

// partitionsOf are those that group members who read these topics share: theirs, and the group's own retry topics. With b.mu held.
func (b *Broker) partitionsOf(g *group, topics []string) (tps []topicPartition) {
	for name, t := range b.topics {
		if _, retry := retrytopic.Delay(g.name, name); retry || slices.Contains(topics, name) {
			for p := range t.partitions {
				tps = append(tps, topicPartition{name, p})
			}
		}
	}
	slices.SortFunc(tps, topicPartition.compare)
	return tps
}

// share says which partitions c should have, with the epochs of their offsets, and how to learn of the next change.
func (b *Broker) share(c *Consumer) (mine map[topicPartition]int, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groupOf(c.cfg.Group)
	mine = map[topicPartition]int{}
	for i, tp := range b.partitionsOf(g, c.cfg.Topics) {
		if g.members[i%len(g.members)] == c {
			mine[tp] = g.epochs[tp]
		}
	}
	return mine, b.changed.Wait()
}

// take makes c the owner of tp, and returns where to begin, if nobody owns it.
func (b *Broker) take(c *Consumer, tp topicPartition) (offset int64, epoch int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groupOf(c.cfg.Group)
	if g.owners[tp] != nil {
		return 0, 0, false
	}
	g.owners[tp] = c
	return g.committed[tp], g.epochs[tp], true
}

func (b *Broker) give(c *Consumer, tp topicPartition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.groupOf(c.cfg.Group).owners, tp)
	b.changed.Fire()
}

// commit is refused for a partition that c does not own, and for an offset that was set from outside since.
func (b *Broker) commit(c *Consumer, tp topicPartition, offset int64, epoch int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groupOf(c.cfg.Group)
	if g.owners[tp] == c && g.epochs[tp] == epoch && offset != g.committed[tp] {
		g.committed[tp] = offset
		b.changed.Fire()
	}
}

// Rewind sets a group's offset of a partition: what lies from there on is delivered again, as an operator's replay does.
func (b *Broker) Rewind(group string, to consumer.Position) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	tp := topicPartition{to.Topic, int(to.Partition)}
	t := b.topics[to.Topic]
	if t == nil || to.Partition < 0 || tp.partition >= len(t.partitions) || to.Offset < 0 || to.Offset > int64(len(t.partitions[tp.partition])) {
		return fmt.Errorf("memory: rewind group %q to %v: there is no such position", group, to)
	}
	g := b.groupOf(group)
	g.committed[tp] = to.Offset
	g.epochs[tp]++
	b.changed.Fire()
	return nil
}

// Redeliver delivers everything in a topic to a group again.
func (b *Broker) Redeliver(group, topic string) error {
	b.mu.Lock()
	t := b.topics[topic]
	n := 0
	if t != nil {
		n = len(t.partitions)
	}
	b.mu.Unlock()
	if n == 0 {
		return fmt.Errorf("memory: redeliver topic %q to group %q: there is no such topic", topic, group)
	}
	for p := range n {
		if err := b.Rewind(group, consumer.Position{Topic: topic, Partition: int32(p)}); err != nil {
			return err
		}
	}
	return nil
}

// Lag is how many messages of these topics, and of the group's retry topics, a group has not settled.
func (b *Broker) Lag(group string, topics ...string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lag(b.groupOf(group), topics)
}

func (b *Broker) lag(g *group, topics []string) (n int64) {
	for _, tp := range b.partitionsOf(g, topics) {
		n += int64(len(b.topics[tp.topic].partitions[tp.partition])) - g.committed[tp]
	}
	return n
}

// WaitSettled waits until a group has settled everything in these topics and in its retry topics: for tests and examples. An error when ctx
// ends first.
func (b *Broker) WaitSettled(ctx context.Context, group string, topics ...string) error {
	for {
		b.mu.Lock()
		lag, changed := b.lag(b.groupOf(group), topics), b.changed.Wait()
		b.mu.Unlock()
		if lag == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("memory: wait for group %q: %d messages are not settled: %w", group, lag, context.Cause(ctx))
		case <-changed:
		}
	}
}
