package kafka

import "context"

// Hook is any value that implements at least one of the Hook interfaces of this package; NewConsumer refuses others. Hooks must be quick;
// a panic in one is logged and dropped.
type Hook any

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int
}

// HookRebalance sees each generation of the group: OnAssigned when its work begins, OnRevoked when its last message in flight has been
// settled and the last offsets are committed.
type HookRebalance interface {
	OnAssigned(ctx context.Context, generation int32, partitions []TopicPartition)
	OnRevoked(ctx context.Context, generation int32, partitions []TopicPartition)
}

// HookCommit sees each commit with its offsets: where the next owner would begin. err nil: the broker has them.
type HookCommit interface {
	OnCommit(ctx context.Context, generation int32, offsets map[TopicPartition]int64, err error)
}

// HookOutOfRange sees each committed offset that is gone. The partition goes on at next; next -1: it halts. first and end are what the
// partition has now.
type HookOutOfRange interface {
	OnOutOfRange(ctx context.Context, p TopicPartition, committed, first, end, next int64)
}

// HookLag sees, about twice a second, how many records of a partition are not settled yet; see Consumer.Lag.
type HookLag interface {
	OnLag(ctx context.Context, p TopicPartition, lag int64)
}

func isHook(h Hook) bool {
	switch h.(type) {
	case HookRebalance, HookCommit, HookOutOfRange, HookLag:
		return true
	}
	return false
}

// has says whether there is a hook that is a T.
func has[T any](c *Consumer) bool {
	for _, h := range c.cfg.Hooks {
		if _, ok := h.(T); ok {
			return true
		}
	}
	return false
}
