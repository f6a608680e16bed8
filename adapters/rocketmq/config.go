package rocketmq

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/remoting"
)

// Config of a consumer. Tools, such as OpenDeadLetters, use the part that says how to reach the cluster: NameServers to Namespace.
// Zero fields take the stated default. Where nothing is said a value is used as it is.
type Config struct {
	// NameServers, "host:port"; at least one.
	NameServers []string
	// Credentials of access control; zero: none.
	Credentials Credentials
	// UnverifiedTLS encrypts connections and verifies nobody's certificate, because the client cannot: whoever sits in between can read
	// and change everything. The client keeps the setting for all its users in the process. Default: plain text.
	UnverifiedTLS bool
	// Namespace of topics and groups, as managed RocketMQ has it; messages show their topics without it. Default: none.
	Namespace string

	// Group of consumers that share the work; default: the scope of the first pipeline's guard.
	Group string
	// Topics of the first pipeline; Route names those of others.
	Topics []string
	// Filters of topics, the same in all members of the group; a topic without one is consumed whole.
	Filters map[string]Filter
	// Orderly keeps the order of each queue; see the package comment for its price. Default: concurrent.
	Orderly bool
	// Start is where a group without a committed offset begins; default Earliest. With Latest, a broker gives a new group all messages
	// of a topic that is so young that nothing of it has been deleted.
	Start Start
	// Levels are the broker's delay levels (messageDelayLevel). Default: what the broker says, or, where it does not tell, RocketMQ's 18 from
	// 1 s to 2 h. With a wrong table messages come back at other times.
	Levels []time.Duration
	// ConsumeTimeout is after how long in this process, waiting included, a message is sent back to the broker for another delivery,
	// although its handler may run still; default 15 min, or twice as long as attempts in place with their delays and the busy wait may take, if
	// that is more. At least that long. Not with Orderly.
	ConsumeTimeout time.Duration
	// NoCreate: a missing group, retry topic or dead-letter topic is an error that says the command. Default: they are made.
	NoCreate bool

	// MaxAhead bounds how far, in offsets, a queue may be consumed ahead of a message that is not settled; then fetching stops. Default
	// 10,000, at most 65,535.
	MaxAhead int
	// MaxWaiting bounds the messages that wait or run in this process, all queues together; then fetching stops. Default 1024, at most 65,535. Each
	// queue may exceed its share by 32. Their bodies are bounded too, by 64 MiB, or 1 MiB a queue if that is more.
	MaxWaiting int

	// Logger; nil: silent. The client has one log for the process, which goes to the Logger of the first consumer, without payloads.
	Logger *slog.Logger
	// Hooks implement HookLag.
	Hooks []Hook
}

// Credentials of access control.
type Credentials struct {
	AccessKey, SecretKey string
	SecurityToken        string // of temporary credentials; may be empty
}

// String hides the secrets.
func (c Credentials) String() string { return "credentials of " + c.AccessKey }

// GoString hides the secrets.
func (c Credentials) GoString() string { return c.String() }

// LogValue hides the secrets.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Filter chooses messages of a topic, by one of its fields. The broker drops the others for the whole group.
type Filter struct {
	Tags string // "paid || refunded"
	SQL  string // "quantity > 10 AND region = 'eu'", over properties; the broker needs enablePropertyFilter=true
}

// Start is a place in a queue.
type Start uint8

const (
	// Default is what the field's comment says.
	Default Start = iota
	// Earliest message that is there.
	Earliest
	// Latest: only what is sent from now on.
	Latest
)

var startNames = [...]string{"default", "earliest", "latest"}

// String is "default", "earliest" or "latest".
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
	return Default, fmt.Errorf("rocketmq: start %q: want default, earliest or latest", s)
}

// Route gives topics to a pipeline.
type Route struct {
	Topics   []string
	Pipeline *consumer.Pipeline
}

const (
	retryPrefix  = "%RETRY%"
	letterPrefix = "%DLQ%"
	// maxCached is the client's bound of what a member holds.
	maxCached = 65_535
)

// What a broker accepts. A group's name is part of its retry topic's, and the client takes no dot in it.
var (
	topicName = regexp.MustCompile(`^[%|a-zA-Z0-9_-]{1,127}$`)
	groupName = regexp.MustCompile(`^[%|a-zA-Z0-9_-]{1,110}$`)
)

// problems collects everything that is wrong with a configuration.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, fmt.Errorf("rocketmq: Config."+field+": "+format, args...))
}

func (p *problems) count(field string, n *int, def, most int) {
	if *n == 0 {
		*n = def
	}
	if *n < 1 || *n > most {
		p.add(field, "%d: from 1 to %d", *n, most)
	}
}

func (p *problems) topic(field, name string) {
	if !topicName.MatchString(name) {
		p.add(field, "%q is not a topic name; use 1 to 127 letters, digits, underscores, hyphens, %% and |", name)
	}
}

// connection checks the part that tools use too.
func (p *problems) connection(cfg *Config) {
	if len(cfg.NameServers) == 0 {
		p.add("NameServers", "empty: name at least one name server, such as %q", "127.0.0.1:9876")
	}
	servers := make([]string, len(cfg.NameServers))
	for i, s := range cfg.NameServers {
		servers[i] = strings.TrimPrefix(s, "http://")
		if _, port, err := net.SplitHostPort(servers[i]); err != nil || port == "" {
			p.add("NameServers", "[%d]: %q is not host:port, such as %q", i, s, "127.0.0.1:9876")
		}
	}
	cfg.NameServers = servers
	if (cfg.Credentials.AccessKey == "") != (cfg.Credentials.SecretKey == "") {
		p.add("Credentials", "AccessKey and SecretKey belong together; set both or none")
	}
	if cfg.Namespace != "" && !groupName.MatchString(cfg.Namespace) {
		p.add("Namespace", "%q: use letters, digits, underscores and hyphens", cfg.Namespace)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
}

// setDefaults fills in zero fields and lists every problem.
func (cfg *Config) setDefaults(routes []Route) error {
	var p problems
	p.connection(cfg)
	p.routes(cfg, routes)
	p.count("MaxAhead", &cfg.MaxAhead, 10_000, maxCached)
	p.count("MaxWaiting", &cfg.MaxWaiting, 1024, maxCached)
	if cfg.Start == Default {
		cfg.Start = Earliest
	}
	if cfg.Start > Latest {
		p.add("Start", "%v: choose Earliest or Latest", cfg.Start)
	}
	for i, l := range cfg.Levels {
		if l <= 0 || i > 0 && l < cfg.Levels[i-1] {
			p.add("Levels", "[%d]: %v: levels are longer than zero and never shorter than the one before", i, l)
		}
	}
	cfg.Levels = slices.Clone(cfg.Levels)
	for _, t := range slices.Sorted(maps.Keys(cfg.Filters)) {
		if f := cfg.Filters[t]; (f.Tags == "") == (f.SQL == "") {
			p.add("Filters", "%q: set Tags or SQL, one of them", t)
		}
	}
	cfg.Filters = maps.Clone(cfg.Filters)
	for i, h := range cfg.Hooks {
		if !isHook(h) {
			p.add("Hooks", "[%d]: %T implements no Hook interface of package rocketmq", i, h)
		}
	}
	return errors.Join(p...)
}

// routes checks that every topic has one pipeline, whose policy the broker can keep.
func (p *problems) routes(cfg *Config, routes []Route) {
	seen := map[string]bool{}
	var longest time.Duration
	for i, r := range routes {
		field := "Topics"
		if i > 0 {
			field = fmt.Sprintf("Route[%d].Topics", i-1)
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
		if r.Pipeline == nil {
			p.add(field, "their pipeline is nil; make it by consumer.NewPipeline")
			continue
		}
		pol := r.Pipeline.Policy()
		longest = max(longest, time.Duration(min(pol.Retry.InPlace, 1000))*(pol.HandlerTimeout+pol.Retry.Backoff.Max)+pol.Busy.Wait)
		p.policy(cfg, pol)
	}
	for _, t := range slices.Sorted(maps.Keys(cfg.Filters)) {
		if !seen[t] {
			p.add("Filters", "%q is not consumed; name it in Topics, or remove its filter", t)
		}
	}
	if cfg.Group == "" && routes[0].Pipeline != nil {
		cfg.Group = routes[0].Pipeline.Guard().Scope()
	}
	if cfg.Group != "" && !groupName.MatchString(cfg.Group) {
		p.add("Group", "%q: use at most 110 letters, digits, underscores and hyphens, which are all that RocketMQ takes (the default is the guard's scope)", cfg.Group)
	}
	for _, r := range routes {
		if r.Pipeline == nil {
			continue
		}
		if name := letterTopic(cfg.Group, r.Pipeline.Policy()); seen[name] {
			p.add("Topics", "%q gets the dead letters: they would be consumed again; choose another Policy.DeadLetter.Topic", name)
		}
	}
	if cfg.ConsumeTimeout == 0 {
		cfg.ConsumeTimeout = max(15*time.Minute, 2*longest)
	}
	if cfg.ConsumeTimeout < longest {
		p.add("ConsumeTimeout", "%v: at least %v, which the policy's attempts in place, with their delays, and the busy wait may take: a message that runs longer is delivered again meanwhile", cfg.ConsumeTimeout, longest)
	}
}

// policy refuses what the way of consuming cannot do.
func (p *problems) policy(cfg *Config, pol consumer.Policy) {
	if cfg.Orderly && len(pol.Retry.Tiers) > 0 {
		p.add("Orderly", "retry.tiers %v break the order of a queue; remove the tiers, or consume concurrently", pol.Retry.Tiers)
	}
	if !cfg.Orderly && pol.AfterLetter == consumer.Block {
		p.add("Orderly", "after_letter: block needs the order of keys, which concurrent consumption has not; set Orderly, or after_letter: go_on")
	}
	if n := len(cfg.Levels); n > 0 && pol.LongestTier() > cfg.Levels[n-1] {
		p.add("Levels", "retry.tiers: %v is longer than the broker's longest delay level, %v", pol.LongestTier(), cfg.Levels[n-1])
	}
}

// resource is the name of a topic or group in the cluster. A group's own topics have the namespace behind their prefix.
func (cfg *Config) resource(name string) string {
	if cfg.Namespace == "" {
		return name
	}
	for _, prefix := range []string{retryPrefix, letterPrefix} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			return prefix + cfg.Namespace + "%" + rest
		}
	}
	return cfg.Namespace + "%" + name
}

// shown is the name without the namespace.
func (cfg *Config) shown(resource string) string {
	if cfg.Namespace == "" {
		return resource
	}
	return strings.TrimPrefix(resource, cfg.Namespace+"%")
}

// shownOwn is shown for a group's own topics too.
func (cfg *Config) shownOwn(resource string) string {
	for _, prefix := range []string{retryPrefix, letterPrefix} {
		if rest, ok := strings.CutPrefix(resource, prefix); ok {
			return prefix + cfg.shown(rest)
		}
	}
	return cfg.shown(resource)
}

// letterTopic is empty when the policy has no dead letters.
func letterTopic(group string, policy consumer.Policy) string {
	switch {
	case policy.DeadLetter.Off:
		return ""
	case policy.DeadLetter.Topic != "":
		return policy.DeadLetter.Topic
	}
	return letterPrefix + group
}

func (cfg *Config) remoting() remoting.Options {
	o := remoting.Options{AccessKey: cfg.Credentials.AccessKey, SecretKey: cfg.Credentials.SecretKey, SecurityToken: cfg.Credentials.SecurityToken}
	if cfg.UnverifiedTLS {
		o.TLS = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as the client does, and as the field's name says
	}
	return o
}
