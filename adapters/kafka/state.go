package kafka

import "fmt"

// Phase of a consumer.
type Phase uint8

const (
	// Idle: Run was never called.
	Idle Phase = iota
	// Starting: probing, or joining the group for the first time.
	Starting
	// Running: a member of the group. With a group larger than its topics' partitions it may have none.
	Running
	// Paused: by Pause, or by an outage, which Err tells.
	Paused
	// Draining: Run's context has ended, or a halt was asked for.
	Draining
	// Stopped: Run has returned nil.
	Stopped
	// Halted: Run has returned Err.
	Halted
)

var phaseNames = [...]string{"idle", "starting", "running", "paused", "draining", "stopped", "halted"}

// String is the name used in logs and metrics, from a closed set.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// State of a consumer, for a health endpoint.
type State struct {
	Phase Phase
	// Err is why: of an outage (Paused) or a halt (Draining, Halted).
	Err error
	// Assigned are this member's partitions.
	Assigned []TopicPartition
	// Left alone by consumer.PausePartition, and why, until the next rebalance or start.
	Left map[TopicPartition]error
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
