package memory

import "github.com/idemq/idemq/consumer"

// State of a consumer.
type State struct {
	Phase consumer.Phase
	Err   error // of an outage (PhasePaused) or a halt (PhaseDraining, PhaseHalted)
	// Partitions is how many this member has.
	Partitions int
}

// State says what the consumer is doing now.
func (c *Consumer) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := State{Phase: c.phase, Err: c.err, Partitions: len(c.parts)}
	if s.Phase == consumer.PhaseRunning && s.Err == nil {
		s.Phase, s.Err = c.gate.Phase()
	}
	return s
}

func (c *Consumer) setPhase(p consumer.Phase) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.phase = p
}
