package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/retrytopic"
)

const (
	defaultClientID = "idemq"
	defaultSession  = 6 * time.Second
	// rebalanceMargin is what a rebalance needs beside the drain timeout: handlers that stop late, their settling, the last commit.
	rebalanceMargin = 5 * time.Second
	minRebalance    = 30 * time.Second
	joinBackoff     = 300 * time.Millisecond
	// commitEvery is also the heartbeat of a drain: a commit is as good as one, and kafka-go sends no other while it drains.
	commitEvery       = 500 * time.Millisecond
	partitionMaxBytes = 1 << 20
)

// Config of a consumer. Tools, such as OpenDeadLetters, use the part that says how to reach the cluster: Brokers to ClientID.
// Zero fields take the stated default. Where nothing is said a value is used as it is.
type Config struct {
	// Brokers to begin with, "host:port"; at least one. The others are learnt from it.
	Brokers []string
	// TLS of every connection; nil: plain text.
	TLS *tls.Config
	// SASL of every connection, such as plain.Mechanism or what scram.Mechanism returns; nil: none.
	SASL sasl.Mechanism
	// ClientID is shown in the broker's logs and quotas; default "idemq".
	ClientID string

	// Group of consumers that share the work; default: the scope of the first pipeline's guard. Retry topics are "<Group>.retry.<duration>": every topic
	// of such a name is consumed. A record there whose idemq-scope is none of our guards' is taken for a message like any other of that topic:
	// its idemq-* headers are not believed.
	Group string
	// Topics of the first pipeline; Route names those of others.
	Topics []string
	// Start is where a partition without a committed offset begins; default Earliest. What was decided is committed at once: with
	// Latest a partition would otherwise begin anew, and lose messages, at each restart before its first commit. Latest is for topics of
	// which the group has committed nothing yet: partitions that are added to a topic later begin at their first record.
	Start Start
	// OutOfRange is what happens when the committed offset is gone, because retention deleted it or the topic was made anew. Default
	// HaltThere: Run ends, since Earliest and Latest skip messages or deliver all of them again. What is skipped is told to HookOutOfRange.
	// It decides too when a topic was seen to be gone and is back, whatever is committed: that belongs to the old one. Kafka forgets the
	// offsets of a topic that is deleted, so the next Run after a halt begins by Start.
	OutOfRange Start
	// Session is how long a member may be silent before its partitions go to others; default 6 s, the least that brokers accept unless
	// group.min.session.timeout.ms is lower. After a crash the crashed partitions stand still that long.
	Session time.Duration
	// Rebalance is how long members may take to finish their work in a rebalance; default 30 s, or 10 s more than the longest drain timeout of
	// a pipeline if that is longer. At least the drain timeout and 5 s.
	Rebalance time.Duration
	// WatchPartitions is how often the topics are looked at for new partitions, and for their deletion; default 5 s. A fetch that meets no such
	// partition has them looked at at once. What nobody can see, since this client reads no topic ids: a topic that is deleted and made anew
	// within a moment and holds more records than were consumed before the next fetch reaches it. Stop the group, or delete its offsets, before you do that.
	WatchPartitions time.Duration
	// WaitForTopic: a topic that is deleted while it is consumed is waited for, and consumed from its beginning, or its end if OutOfRange is
	// Latest. Default: Run ends with an error when a topic has been gone for 30 s, and OutOfRange decides when it is back earlier.
	WaitForTopic bool
	// NoCreate: missing retry and dead-letter topics are an error that says the command. Default: they are made, with the source's number
	// of partitions and the broker's replication factor.
	NoCreate bool

	// MaxAhead bounds the messages of a partition that are settled or in work beyond one that is not settled, which all would be sent
	// again after a crash; then fetching stops. Default 10,000.
	MaxAhead int
	// MaxWaiting bounds the bytes of a partition's messages that wait in this process; then fetching stops. Default 4 MiB. One answer of a broker may
	// exceed it by 1 MiB, or by the size of a batch.
	MaxWaiting int

	// Logger; nil: that of the first pipeline, for tools slog.Default(). For silence, slog.New(slog.DiscardHandler).
	Logger *slog.Logger
	// Hooks implement at least one of HookRebalance, HookCommit, HookOutOfRange, HookLag.
	Hooks []Hook
}

// Start is a place in a partition.
type Start uint8

const (
	// Default is what the field's comment says.
	Default Start = iota
	// Earliest record that is there.
	Earliest
	// Latest: only what is produced from now on.
	Latest
	// HaltThere ends Run with an error instead of choosing.
	HaltThere
)

var startNames = [...]string{"default", "earliest", "latest", "halt"}

// String is "default", "earliest", "latest" or "halt".
func (s Start) String() string {
	if int(s) < len(startNames) {
		return startNames[s]
	}
	return fmt.Sprintf("start(%d)", uint8(s))
}

// ParseStart reads what String writes.
func ParseStart(s string) (Start, error) {
	if i := slices.Index(startNames[:], s); i >= 0 {
		return Start(i), nil
	}
	return Default, fmt.Errorf("kafka: start %q: want default, earliest, latest or halt", s)
}

// Route gives topics to a pipeline.
type Route struct {
	Topics   []string
	Pipeline *consumer.Pipeline
}

// topicName is what a broker accepts, but for "." and "..".
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// problems collects everything that is wrong with a configuration.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, fmt.Errorf("kafka: Config."+field+": "+format, args...))
}

func (p *problems) duration(field string, d *time.Duration, def, least time.Duration) {
	if *d == 0 {
		*d = def
	}
	if *d < least {
		p.add(field, "%v: at least %v", *d, least)
	}
}

func (p *problems) count(field string, n *int, def int) {
	if *n == 0 {
		*n = def
	}
	if *n < 1 {
		p.add(field, "%d: at least 1", *n)
	}
}

func (p *problems) topic(field, name string) {
	if !topicName.MatchString(name) || name == "." || name == ".." {
		p.add(field, "%q is not a topic name; use 1 to 249 letters, digits, dots, underscores and hyphens", name)
	}
}

// connection checks the part that tools use too.
func (p *problems) connection(cfg *Config) {
	if len(cfg.Brokers) == 0 {
		p.add("Brokers", "empty: name at least one broker, such as %q", "127.0.0.1:9092")
	}
	for i, b := range cfg.Brokers {
		if _, port, err := net.SplitHostPort(b); err != nil || port == "" {
			p.add("Brokers", "[%d]: %q is not host:port, such as %q", i, b, "127.0.0.1:9092")
		}
	}
	if cfg.ClientID == "" {
		cfg.ClientID = defaultClientID
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Brokers = slices.Clone(cfg.Brokers)
	cfg.TLS = cfg.TLS.Clone() // nil stays nil
}

// setDefaults fills in zero fields and lists every problem.
func (cfg *Config) setDefaults(routes []Route) error {
	var p problems
	if pipe := routes[0].Pipeline; cfg.Logger == nil && pipe != nil {
		cfg.Logger = pipe.Logger()
	}
	p.connection(cfg)
	p.routes(cfg, routes)
	p.duration("Session", &cfg.Session, defaultSession, 100*time.Millisecond)
	p.duration("WatchPartitions", &cfg.WatchPartitions, 5*time.Second, 10*time.Millisecond)
	p.count("MaxAhead", &cfg.MaxAhead, 10_000)
	p.count("MaxWaiting", &cfg.MaxWaiting, 4<<20)
	p.rebalance(cfg, routes)
	if cfg.Start == Default {
		cfg.Start = Earliest
	}
	if cfg.Start > Latest {
		p.add("Start", "%v: choose Earliest or Latest", cfg.Start)
	}
	if cfg.OutOfRange == Default {
		cfg.OutOfRange = HaltThere
	}
	if cfg.OutOfRange > HaltThere {
		p.add("OutOfRange", "%v: choose Earliest, Latest or HaltThere", cfg.OutOfRange)
	}
	for i, h := range cfg.Hooks {
		if !isHook(h) {
			p.add("Hooks", "[%d]: %T implements no Hook interface of package kafka", i, h)
		}
	}
	return errors.Join(p...)
}

// routes checks that every topic has one pipeline.
func (p *problems) routes(cfg *Config, routes []Route) {
	seen := map[string]bool{}
	for i, r := range routes {
		field := "Topics"
		if i > 0 {
			field = fmt.Sprintf("Route[%d].Topics", i-1)
		}
		if r.Pipeline == nil {
			p.add(field, "their pipeline is nil; make it by consumer.NewPipeline")
		}
		if len(r.Topics) == 0 {
			p.add(field, "empty: name at least one topic")
		}
		for _, t := range r.Topics {
			p.topic(field, t)
			if seen[t] {
				p.add(field, "%q is named twice; a topic belongs to one pipeline", t)
			}
			seen[t] = true
		}
	}
	if cfg.Group == "" && routes[0].Pipeline != nil {
		cfg.Group = routes[0].Pipeline.Guard().Scope()
	}
	for _, r := range routes {
		if r.Pipeline == nil {
			continue
		}
		name := letterTopic(cfg.Group, r.Pipeline.Policy())
		if seen[name] {
			p.add("Topics", "%q gets the dead letters: they would be consumed again; choose another Policy.DeadLetter.Topic", name)
		}
		if prefix := retrytopic.Prefix(cfg.Group); strings.HasPrefix(name, prefix) {
			p.add("Group", "dead letters go to %q, but names that begin with %q are for retry topics; choose another Policy.DeadLetter.Topic", name, prefix)
		}
	}
	for t := range seen {
		if _, retry := retrytopic.Delay(cfg.Group, t); retry {
			p.add("Topics", "%q is a retry topic of the group, which consumes it by itself", t)
		}
	}
	if cfg.Group != "" && !topicName.MatchString(retrytopic.Prefix(cfg.Group)) {
		p.add("Group", "%q: use at most 242 letters, digits, dots, underscores and hyphens: retry topics are named after the group", cfg.Group)
	}
}

// rebalance checks that a drain fits into a rebalance: a member that drains longer is thrown out, and its work is done by two.
func (p *problems) rebalance(cfg *Config, routes []Route) {
	var drain time.Duration
	for _, r := range routes {
		if r.Pipeline != nil {
			drain = max(drain, r.Pipeline.Policy().DrainTimeout)
		}
	}
	if cfg.Rebalance == 0 {
		cfg.Rebalance = max(minRebalance, drain+2*rebalanceMargin)
	}
	if least := drain + rebalanceMargin; cfg.Rebalance < least {
		p.add("Rebalance", "%v: at least %v, which is the drain timeout %v and %v; or shorten Policy.DrainTimeout", cfg.Rebalance, least, drain, rebalanceMargin)
	}
}
