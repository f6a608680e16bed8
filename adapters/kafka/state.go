package kafka

import "github.com/idemq/idemq/consumer"

// State of a consumer, for a health endpoint.
type State struct {
	Phase consumer.Phase
	// Err is why: of an outage (PhasePaused) or a halt (PhaseDraining, PhaseHalted).
	Err error
	// Assigned are this member's partitions.
	Assigned []TopicPartition
	// Left alone by consumer.PausePartition, and why, until the next rebalance or start.
	Left map[TopicPartition]error
	// Blocked have a key that goes no further since one of its messages became a dead letter (consumer.Block), and name the first such message. The
	// other keys go on until Config.MaxAhead messages, or half the guard's retention, lie beyond the key's next message; then
	// the partition stands still, which the error says too, until the next rebalance or start.
	Blocked map[TopicPartition]error
}

// State says what the consumer is doing now.
func (c *Consumer) State() State {
	c.mu.Lock()
	r := c.running
	s := State{Phase: c.phase, Err: c.err}
	c.mu.Unlock()
	if r != nil {
		r.describe(&s)
	}
	return s
}

// Lag is how many records of each of this member's partitions are not settled: what a read-committed reader could read (the last stable offset), less
// the watermark. Records in work count as lag. A partition that is new here is missing until its first answer.
func (c *Consumer) Lag() map[TopicPartition]int64 {
	c.mu.Lock()
	r := c.running
	c.mu.Unlock()
	if r == nil {
		return map[TopicPartition]int64{}
	}
	return lagOf(r.partitions())
}
