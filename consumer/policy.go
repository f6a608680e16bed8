package consumer

import (
	"fmt"
	"strings"
	"time"
)

// Policy is what happens when a message cannot simply be applied. Zero fields take the stated default; Effective fills them in.
// policyfile reads the same from YAML.
type Policy struct {
	HandlerTimeout time.Duration // of one run; default 30 s; below the broker's consume timeout
	Concurrency    int           // messages in work in this process; default 16
	DrainTimeout   time.Duration // how long a stop or a rebalance waits for handlers; default 20 s
	Order          Order         // default OrderKey; tiers need OrderNone
	AfterLetter    AfterLetter   // OrderKey: what happens to a key after one of its messages became a dead letter; default GoOn
	OnHalt         OnHalt        // default StopRunner
	Conflict       Rejected      // same id, other payload; default DeadLetterIt
	MissingID      MissingID     // default MissingIDDeadLetter
	StoreOutage    StoreOutage   // default OutageWait
	Retry          Retry
	Busy           Busy
	DeadLetter     DeadLetterTo
}

// Unlimited attempts.
const Unlimited = -1

// Retry says how often and how soon.
type Retry struct {
	Attempts  int // all together, over restarts and consumers; default 10, or Unlimited
	InPlace   int // of those, how many before the message goes back to the broker; default 3, or Attempts where that is less
	Backoff   Backoff
	Tiers     []time.Duration // where the message waits after that. Kafka: a retry topic each. RocketMQ: the next level above. Empty: in place on Kafka, the backoff's level on RocketMQ
	Permanent []string        // names from Config.Errors, beside Permanent(err)
}

// Backoff is the delay after the n-th failure: Initial, times Factor for each more, at most Max, spread by Jitter.
type Backoff struct {
	Initial time.Duration // default 200 ms
	Factor  float64       // default 2; at least 1
	Max     time.Duration // default 30 s
	Jitter  float64       // share of the delay to either side, up to 1; default 0.2
}

// Busy is for a message that another owner works on.
type Busy struct {
	Wait time.Duration // in place; then the message is handed back, and nothing is counted; default 5 s
}

// Rejected says what happens to a message that conflicts.
type Rejected uint8

const (
	// DeadLetterIt: the message and its reason go to the dead letters.
	DeadLetterIt Rejected = iota
	// HaltOnIt: the consumer stops, nothing is acknowledged.
	HaltOnIt
)

// String is the name in YAML.
func (r Rejected) String() string { return name(r, "dead_letter", "halt") }

// MissingID says what happens to a message without an id.
type MissingID uint8

const (
	// MissingIDDeadLetter: to the dead letters.
	MissingIDDeadLetter MissingID = iota
	// MissingIDUsePosition: its position is its id; see IDFromPosition.
	MissingIDUsePosition
	// MissingIDHalt: the consumer stops.
	MissingIDHalt
)

// String is the name in YAML.
func (m MissingID) String() string { return name(m, "dead_letter", "position", "halt") }

// StoreOutage says what happens to messages while the authority cannot answer.
type StoreOutage uint8

const (
	// OutageWait: do not fetch, do not acknowledge. The only choice in modes with a log.
	OutageWait StoreOutage = iota
	// OutageProcessUnprotected: RedisOnly. Every message counts as new: duplicates WILL apply. Printed at every start.
	OutageProcessUnprotected
)

// String is the name in YAML.
func (o StoreOutage) String() string { return name(o, "wait", "process_unprotected") }

// Order that handlers see.
type Order uint8

const (
	// OrderKey: messages of one key run one after the other, in the order of the broker. Retries and waits are in place.
	OrderKey Order = iota
	// OrderNone: any message may run beside any other, and retry tiers are allowed.
	OrderNone
)

// String is the name in YAML.
func (o Order) String() string { return name(o, "key", "none") }

// AfterLetter says what happens to a key after one of its messages became a dead letter.
type AfterLetter uint8

const (
	// GoOn: the next message of the key runs; logged.
	GoOn AfterLetter = iota
	// Block: the next message of the key waits, unacknowledged, until the consumer is started again.
	Block
)

// String is the name in YAML.
func (a AfterLetter) String() string { return name(a, "go_on", "block") }

// OnHalt says what a runner does on Halt.
type OnHalt uint8

const (
	// StopRunner: Run returns the error. The message moves on to the next member of the group and halts that one too.
	StopRunner OnHalt = iota
	// PausePartition: the partition (or queue) is left alone until the next rebalance or start; the others go on.
	PausePartition
)

// String is the name in YAML.
func (o OnHalt) String() string { return name(o, "stop", "pause_partition") }

// DeadLetterTo says where dead letters go.
type DeadLetterTo struct {
	Topic string // default "<group>.dlq"; RocketMQ "%DLQ%<group>"
	// Off: a message that could only become a dead letter halts the consumer.
	Off bool
}

// Effective is p with its defaults filled in. DeadLetter.Topic stays empty where it is: the adapter knows the group.
func (p Policy) Effective() Policy {
	defaults(&p.HandlerTimeout, 30*time.Second)
	defaults(&p.Concurrency, 16)
	defaults(&p.DrainTimeout, 20*time.Second)
	defaults(&p.Retry.Attempts, 10)
	inPlace := 3
	if p.Retry.Attempts > 0 {
		inPlace = min(inPlace, p.Retry.Attempts)
	}
	defaults(&p.Retry.InPlace, inPlace)
	p.Retry.Backoff = p.Retry.Backoff.withDefaults()
	defaults(&p.Busy.Wait, 5*time.Second)
	return p
}

func (b Backoff) withDefaults() Backoff {
	defaults(&b.Initial, 200*time.Millisecond)
	defaults(&b.Factor, 2)
	defaults(&b.Max, max(30*time.Second, b.Initial))
	defaults(&b.Jitter, 0.2)
	return b
}

func defaults[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// LongestTier is zero without tiers.
func (p Policy) LongestTier() (d time.Duration) {
	for _, t := range p.Retry.Tiers {
		d = max(d, t)
	}
	return d
}

// exhausted says that a message with so many failures is not run again.
func (p Policy) exhausted(failures int) bool {
	return p.Retry.Attempts != Unlimited && failures >= p.Retry.Attempts
}

// tier is the index of the tier in which a message with so many failures waits, -1 for none.
func (p Policy) tier(failures int) int {
	return min(max(failures-p.Retry.InPlace, 0), len(p.Retry.Tiers)-1)
}

// String is the effective policy in one line, with the names of YAML: what is printed at start.
func (p Policy) String() string {
	p = p.Effective()
	attempts := fmt.Sprint(p.Retry.Attempts)
	if p.Retry.Attempts == Unlimited {
		attempts = "unlimited"
	}
	dead := "topic " + p.DeadLetter.Topic
	switch {
	case p.DeadLetter.Off:
		dead = "off"
	case p.DeadLetter.Topic == "":
		dead = "topic <group>.dlq"
	}
	b := p.Retry.Backoff
	fields := []string{
		fmt.Sprintf("handler_timeout %v", p.HandlerTimeout),
		fmt.Sprintf("concurrency %d", p.Concurrency),
		fmt.Sprintf("drain_timeout %v", p.DrainTimeout),
		fmt.Sprintf("order %v", p.Order),
		fmt.Sprintf("after_letter %v", p.AfterLetter),
		fmt.Sprintf("on_halt %v", p.OnHalt),
		fmt.Sprintf("on_conflict %v", p.Conflict),
		fmt.Sprintf("on_missing_id %v", p.MissingID),
		fmt.Sprintf("store_outage %v", p.StoreOutage),
		fmt.Sprintf("attempts %s (%d in place, after %v times %g up to %v, jitter %g)", attempts, p.Retry.InPlace, b.Initial, b.Factor, b.Max, b.Jitter),
		fmt.Sprintf("tiers %v", p.Retry.Tiers),
		fmt.Sprintf("permanent %v", p.Retry.Permanent),
		fmt.Sprintf("busy wait %v", p.Busy.Wait),
		"dead letters " + dead,
	}
	return strings.Join(fields, ", ")
}
