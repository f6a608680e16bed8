package consumer

// Phase is what a consumer of an adapter is doing, as its State tells. The zero Phase is PhaseIdle.
type Phase uint8

const (
	// PhaseIdle: Run was never called.
	PhaseIdle Phase = iota
	// PhaseStarting: Run checks the guard and the broker, or joins the group for the first time.
	PhaseStarting
	// PhaseRunning: a member of the group. In a group larger than its topics it may have no partition.
	PhaseRunning
	// PhasePaused: a member of the group that begins nothing, because of Pause or of an outage, which State tells.
	PhasePaused
	// PhaseDraining: Run's context has ended, or a halt was asked for; what runs comes to its end.
	PhaseDraining
	// PhaseStopped: Run has returned nil.
	PhaseStopped
	// PhaseHalted: Run has returned an error, which State tells.
	PhaseHalted
)

// String is the name used in logs and metrics, from a closed set.
func (p Phase) String() string {
	return name(p, "idle", "starting", "running", "paused", "draining", "stopped", "halted")
}
