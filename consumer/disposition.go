package consumer

import (
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Action an adapter takes. The zero Action is Again: forgetting to set it can never lose a message.
type Action uint8

const (
	// Again: do not acknowledge; deliver again after After.
	Again Action = iota
	// Ack: settled: applied, known duplicate, or its dead letter is stored.
	Ack
	// Halt: do not acknowledge; stop the runner with Err, as Policy.OnHalt says.
	Halt
)

// String is the name used in logs and metrics, from a closed set.
func (a Action) String() string { return name(a, "again", "ack", "halt") }

// Why a message goes back. The zero Why belongs to Ack and Halt.
type Why uint8

const (
	_ Why = iota
	// Failed: the handler's own failure, counted (or, with Failures 0, Config.OnDuplicate's). Only these go to a retry topic or a delay level.
	Failed
	// WhyBusy: another owner works on it, or an earlier message of its key comes first.
	WhyBusy
	// Outage: a store or the dead letters could not answer. The adapter stops fetching and probes Pipeline.Ready.
	Outage
	// Draining: the runner stops or lost the partition; nothing ran, or the handler was cancelled.
	Draining
)

// String is the name used in logs and metrics, from a closed set; empty for the zero Why.
func (w Why) String() string { return name(w, "", "failed", "busy", "outage", "draining") }

func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}

// Disposition is what an adapter does with a delivery, and why.
type Disposition struct {
	Action Action
	Why    Why           // of Again
	After  time.Duration // Again: not before
	// Failures of the handler so far. Again with Failed: Tier says which of Policy.Retry.Tiers the message waits in, -1 for none (it waits in
	// place, with RocketMQ at the level that fits After).
	Failures int
	Tier     int
	Verdict  dedupe.Verdict // what was known about the delivery; zero when nothing was
	// Letter, with Ack: a dead letter was stored for this delivery. With Policy.AfterLetter Block its key goes no further.
	Letter bool
	Err    error // why not applied, for logs; always set with Halt
}

func halt(err error) Disposition { return Disposition{Action: Halt, Tier: -1, Err: err} }

func again(why Why, after time.Duration, err error) Disposition {
	return Disposition{Action: Again, Why: why, After: after, Tier: -1, Err: err}
}

func ack(v dedupe.Verdict) Disposition { return Disposition{Action: Ack, Tier: -1, Verdict: v} }
