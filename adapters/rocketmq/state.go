package rocketmq

import (
	"fmt"
	"maps"
)

// Phase of a consumer.
type Phase uint8

const (
	// Idle: Run was never called.
	Idle Phase = iota
	// Starting: asking the cluster and the guard.
	Starting
	// Running: a member of the group. It may have no queues, for some seconds after the start, or in a group larger than its topics' queues.
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
	// Assigned are this member's queues, its share of the group's retry queue among them, as of the last five seconds.
	Assigned []Queue
	// Left alone by consumer.PausePartition, or by consumer.Block, and why, until the next start.
	Left map[Queue]error
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

// Lag is how many messages of each of this member's queues are not settled: the broker's end of the queue less the offset that the next owner would
// begin at, as of the last five seconds. Messages in work count as lag; messages that wait at the broker for a delay level do not, until they are
// due. A queue that is new here is missing until its first answer.
func (c *Consumer) Lag() map[Queue]int64 {
	c.mu.Lock()
	r := c.running
	c.mu.Unlock()
	if r == nil {
		return map[Queue]int64{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.lag)
}
