package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/consumer/policyfile"
	"github.com/idemq/idemq/dedupe"
)

// services are the flags that say where things are and what is promised. Each may be an environment variable instead:
// INVENTORY_BROKERS, INVENTORY_DB, and so on. All commands take the same ones, so that one set of variables serves them all.
type services struct {
	Broker  string        `enum:"kafka" default:"kafka" help:"Kind of message broker: ${enum}."`
	Brokers []string      `default:"127.0.0.1:9092" help:"Addresses of the brokers, separated by commas."`
	Topic   string        `default:"orders" help:"Topic of the orders."`
	Group   string        `default:"inventory" help:"Consumer group; the deduplication's scope too."`
	Redis   string        `placeholder:"URL" help:"redis://HOST:PORT, rediss://, redis+sentinel:// or redis+cluster://. Empty: without Redis."`
	DB      string        `name:"db" placeholder:"URL" help:"postgres://USER:PW@HOST:PORT/DB, mysql://USER:PW@HOST:PORT/DB or sqlite:FILE."`
	Mode    dedupe.Mode   `default:"transactional" help:"transactional, logged or redis-only."`
	Policy  string        `placeholder:"FILE" help:"What happens to a message that cannot simply be applied (YAML). Empty: the defaults."`
	Workers int           `default:"0" help:"Messages in work at a time in this process; 0: as the policy says, which is 16 by default."`
	Session time.Duration `default:"6s" help:"How long the broker waits for a silent consumer. Below 6s only where its group.min.session.timeout.ms is lower, as after make local-up."`
	Lease   time.Duration `default:"12s" help:"How long a claim lasts unless renewed: so long a message of a crashed consumer waits."`
}

// validate lists what is wrong with the flags that every command needs.
func (s services) validate() []error {
	var bad []error
	for _, b := range s.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			bad = append(bad, fmt.Errorf("--brokers %q: write HOST:PORT, such as 127.0.0.1:9092, several separated by commas", b))
		}
	}
	if s.Topic == "" {
		bad = append(bad, errors.New(`--topic "": name the topic of the orders, such as orders`))
	}
	if _, err := dedupe.NewKey(s.Group, "", "x"); err != nil {
		bad = append(bad, fmt.Errorf("--group %q: %w", s.Group, err))
	}
	return bad
}

// validateStores lists what is wrong with the flags of commands that open the stores.
func (s services) validateStores() []error {
	bad := s.validate()
	if s.DB == "" {
		bad = append(bad, errors.New("--db: missing; say where the stock is, such as sqlite:inventory.db or postgres://user:pw@127.0.0.1:5432/shop (environment: INVENTORY_DB)"))
	}
	if s.Mode == dedupe.RedisOnly && s.Redis == "" {
		bad = append(bad, errors.New("--redis: missing; redis-only keeps its claims there, such as redis://127.0.0.1:6379 (environment: INVENTORY_REDIS)"))
	}
	for _, n := range []struct {
		flag string
		d    time.Duration
	}{{"--session", s.Session}, {"--lease", s.Lease}} {
		if n.d <= 0 {
			bad = append(bad, fmt.Errorf("%s %v: must be positive, such as 6s", n.flag, n.d))
		}
	}
	if s.Workers < 0 {
		bad = append(bad, fmt.Errorf("--workers %d: at least 1, or 0 for the policy's concurrency", s.Workers))
	}
	return bad
}

// validateDB refuses an SQLite file that is not there, which opening would make: only reset may.
func (s services) validateDB() []error {
	file, sqlite := strings.CutPrefix(s.DB, "sqlite:")
	file = strings.TrimPrefix(file, "//")
	if !sqlite || file == "" {
		return nil
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return []error{fmt.Errorf("--db %q: there is no such file; correct it, or run reset, which makes it", s.DB)}
	}
	return nil
}

// policy is the effective one: that of the file, if there is one, with --workers as its concurrency.
func (s services) policy() (consumer.Policy, error) {
	var p consumer.Policy
	if s.Policy != "" {
		var err error
		p, err = policyfile.Load(s.Policy)
		if errors.Is(err, fs.ErrNotExist) {
			return p, fmt.Errorf("--policy %q: there is no such file", s.Policy)
		}
		if err != nil {
			return p, err
		}
	}
	if s.Workers > 0 {
		p.Concurrency = s.Workers
	}
	return p.Effective(), nil
}

// deadLetterTopic is where the consumer's dead letters go.
func (s services) deadLetterTopic(p consumer.Policy) string {
	if p.DeadLetter.Topic != "" {
		return p.DeadLetter.Topic
	}
	return s.Group + ".dlq"
}

// naiveGroup is the group of the consumer without deduplication that runs beside ours in the demo.
func (s services) naiveGroup() string { return s.Group + "-naive" }

// terminal is where a command writes: results to out, everything else to err.
type terminal struct{ out, err io.Writer }

// problems joins what validate found; nil when it found nothing.
func problems(bad []error) error {
	switch len(bad) {
	case 0:
		return nil
	case 1:
		return bad[0]
	}
	return fmt.Errorf("%d wrong or missing settings:\n%w", len(bad), errors.Join(bad...))
}

// wait sleeps for d, or until ctx ends: then it returns why.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
