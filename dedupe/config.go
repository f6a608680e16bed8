package dedupe

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config of a Guard. Zero fields take the stated default; Mode and Scope have none.
type Config struct {
	// Scope is who consumes: application or consumer group. Two scopes each apply a message once.
	Scope string
	Mode  Mode
	Store Store // Redis: asked first; the authority in RedisOnly alone
	Log   Log   // database: the truth

	// Lease is how long a claim lasts unless renewed; default 12 s, at least 100 ms. A crash stalls the crashed messages that long.
	Lease time.Duration
	// Retention is how long a done key is remembered; default 15 days, at least the lease and at least the broker's redelivery horizon.
	Retention time.Duration
	// StopGrace is how long a handler may go on after its context ended before it is named in the log, and how long settling may take after the
	// caller's context ended; default 5 s.
	StopGrace time.Duration
	// MaxResultBytes caps SetResult; default 4096, at most 1 MiB.
	MaxResultBytes int
	// OnMemoryLoss is for RedisOnly; default HaltOnMemoryLoss.
	OnMemoryLoss MemoryLoss
	// DropOriginal does not store the original of a hashed id.
	DropOriginal bool

	// Logger; nil: slog.Default(), as New finds it. For silence, slog.New(slog.DiscardHandler). Keys are logged as hashes, payloads never.
	Logger *slog.Logger
	Hooks  []Hook
}

// MemoryLoss says what RedisOnly does when Redis came back without its memory.
type MemoryLoss uint8

const (
	// HaltOnMemoryLoss: every message is ErrMemoryLost until the process is started again, which accepts the loss.
	HaltOnMemoryLoss MemoryLoss = iota
	// ContinueOnMemoryLoss: named in the log, counted, and earlier messages that come again WILL apply again.
	ContinueOnMemoryLoss
)

const (
	defaultLease     = 12 * time.Second
	minLease         = 100 * time.Millisecond
	defaultRetention = 15 * 24 * time.Hour
	defaultStopGrace = 5 * time.Second
	defaultMaxResult = 4096
	limitMaxResult   = 1 << 20
)

// setDefaults fills in zero fields and lists every problem.
func (c *Config) setDefaults() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("dedupe: Config."+field+": "+format, args...))
	}
	if err := checkScope(c.Scope); err != nil {
		bad("Scope", "%w", err)
	}
	switch {
	case !c.Mode.valid():
		bad("Mode", "%v: choose Transactional, Logged or RedisOnly; there is no default", c.Mode)
	case c.Mode.hasLog() && c.Log == nil:
		bad("Log", "nil: %v needs a log, such as sqlstore.New(db, sqlstore.Config{})", c.Mode)
	case c.Mode == RedisOnly && c.Log != nil:
		bad("Log", "set: redis-only never asks it; choose Logged or Transactional, or leave Log nil")
	case c.Mode == RedisOnly && c.Store == nil:
		bad("Store", "nil: redis-only needs a store, such as redisstore.New(client, redisstore.Config{})")
	}
	if _, ok := c.Store.(Memory); c.Mode == RedisOnly && c.Store != nil && !ok {
		bad("Store", "%T does not notice when it loses its memory (dedupe.Memory): earlier messages would apply again unseen; use redisstore, or choose a mode with a log", c.Store)
	}
	duration := func(field string, d *time.Duration, def, least time.Duration) {
		if *d == 0 {
			*d = def
		}
		if *d < least {
			bad(field, "%v: at least %v", *d, least)
		}
	}
	duration("Lease", &c.Lease, defaultLease, minLease)
	duration("Retention", &c.Retention, defaultRetention, c.Lease)
	duration("StopGrace", &c.StopGrace, defaultStopGrace, time.Millisecond)
	if c.MaxResultBytes == 0 {
		c.MaxResultBytes = defaultMaxResult
	}
	if c.MaxResultBytes < 0 || c.MaxResultBytes > limitMaxResult {
		bad("MaxResultBytes", "%d: from 1 to %d", c.MaxResultBytes, limitMaxResult)
	}
	if c.OnMemoryLoss > ContinueOnMemoryLoss {
		bad("OnMemoryLoss", "%d: choose HaltOnMemoryLoss or ContinueOnMemoryLoss", c.OnMemoryLoss)
	}
	for _, s := range []any{c.Store, c.Log} {
		if v, ok := s.(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for i, h := range c.Hooks {
		switch h.(type) {
		case HookVerdict, HookStoreCall, HookLeaseLost, HookAnomaly:
		default:
			bad("Hooks", "[%d]: %T implements no Hook interface of package dedupe", i, h)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}
