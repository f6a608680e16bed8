package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Config of a Store. Zero fields take the stated default.
type Config struct {
	// Prefix of all keys: 1 to 64 of [A-Za-z0-9._:-]; default "idemq". The same in all processes of a scope.
	Prefix string
	// Shards is how many hash tags a scope is spread over, which is how many masters of a cluster it can use; from 1 to 1024,
	// default 16. The same in all processes of a scope: keys written with another number are not found. RedisOnly refuses
	// another number by name; in modes with a log Redis is as good as empty after a change, but Forget and Reopen with another
	// number leave the old Done or Dead where the others read it.
	Shards int
	// Timeout bounds one call, from 1 ms; default 250 ms. The lease must be at least three times as long. A client with
	// ContextTimeoutEnabled false waits for its own timeouts instead.
	Timeout time.Duration
	// Breaker refuses calls at once while a server does not answer.
	Breaker Breaker
	// RetryFor is how long a scope of RedisOnly asks again when a cluster says that it is busy with itself (TRYAGAIN, MOVED, ASK,
	// LOADING, MASTERDOWN, CLUSTERDOWN), which surely did nothing; default 1 s, negative: not at all. Modes with a log go to the log.
	RetryFor time.Duration
	// Logger; nil: slog.Default(), as New finds it. For silence, slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

// Breaker opens after Failures calls in a row without an answer, and probes by PING.
type Breaker struct {
	Failures int           // from 1; default 3
	Probe    time.Duration // how long the breaker stays open before a PING, from 1 ms; default 500 ms
}

const (
	defaultPrefix   = "idemq"
	defaultShards   = 16
	maxShards       = 1024
	defaultTimeout  = 250 * time.Millisecond
	defaultFailures = 3
	defaultProbe    = 500 * time.Millisecond
	defaultRetryFor = time.Second
)

var goodPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// setDefaults fills in zero fields and lists every problem. A field with a problem takes its default, so that a Store that was not
// validated still does nothing wrong.
func (c *Config) setDefaults() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("redisstore: Config."+format, args...))
	}
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if !goodPrefix.MatchString(c.Prefix) {
		bad("Prefix: %q: use 1 to 64 letters, digits, dots, underscores, colons and hyphens", c.Prefix)
		c.Prefix = defaultPrefix
	}
	number := func(field string, n *int, def, most int) {
		if *n == 0 {
			*n = def
		}
		if *n < 1 || *n > most {
			bad("%s: %d: from 1 to %d", field, *n, most)
			*n = def
		}
	}
	number("Shards", &c.Shards, defaultShards, maxShards)
	number("Breaker.Failures", &c.Breaker.Failures, defaultFailures, 1_000_000)
	duration := func(field string, d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
		if *d < time.Millisecond {
			bad("%s: %v: at least 1ms", field, *d)
			*d = def
		}
	}
	duration("Timeout", &c.Timeout, defaultTimeout)
	duration("Breaker.Probe", &c.Breaker.Probe, defaultProbe)
	if c.RetryFor == 0 {
		c.RetryFor = defaultRetryFor
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
