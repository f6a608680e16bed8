package memory

import "fmt"

// Phase of a consumer.
type Phase uint8

const (
	// Idle: Run was never called.
	Idle Phase = iota
	// Starting: checking the guard and joining the group.
	Starting
	// Running: a member of the group.
	Running
	// Paused: by Pause, or by an outage, which State.Err tells.
	Paused
	// Draining: Run's context has ended, or a message halted it.
	Draining
	// Stopped: Run has returned nil.
	Stopped
	// Halted: Run has returned State.Err.
	Halted
)

var phases = [...]string{"idle", "starting", "running", "paused", "draining", "stopped", "halted"}

// String is the name used in logs, from a closed set.
func (p Phase) String() string {
	if int(p) < len(phases) {
		return phases[p]
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// State of a consumer.
type State struct {
	Phase Phase
	Err   error // of an outage (Paused) or a halt (Draining, Halted)
	// Partitions is how many this member has.
	Partitions int
}

// State says what the consumer is doing now.
func (c *Consumer) State() State {
	held, outage := c.gate.held()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{Phase: c.phase, Err: c.err, Partitions: len(c.parts)}
	if s.Phase == Running && held {
		s.Phase, s.Err = Paused, outage
	}
	return s
}

func (c *Consumer) setPhase(p Phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = p
}
