package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Config of a Pipeline. Guard, ID and one of the handlers are required; zero fields take the stated default.
type Config struct {
	Guard *dedupe.Guard
	// Handler or BatchHandler.
	Handler      Handler
	BatchHandler BatchHandler
	Batch        Batch
	ID           IDFunc
	// SharedIDs: an id means the same message on every topic. Default: each origin topic has ids of its own.
	SharedIDs   bool
	Fingerprint FingerprintFunc // default: the whole body
	Policy      Policy
	// Errors names errors for Policy.Retry.Permanent.
	Errors     map[string]func(error) bool
	Middleware []Middleware // around Handler, outermost first; not allowed with BatchHandler
	// OnDuplicate sees what the first run stored, to send a lost reply again. An error leaves the message unacknowledged.
	OnDuplicate func(ctx context.Context, m *Message, r dedupe.Record) error
	// Logger; nil: slog.Default(). For silence, slog.New(slog.DiscardHandler). Keys are logged as hashes, payloads never.
	Logger *slog.Logger
	Hooks  []Hook
}

// Batch is how many messages a BatchHandler gets: consecutive ones of one partition.
type Batch struct {
	Max  int           // default 100
	Wait time.Duration // for more messages once one is there; default 0: take what is there
}

// Pipeline is safe for concurrent use. It has no goroutine of its own except those that run handlers.
type Pipeline struct {
	cfg      Config
	gate     gate
	unburied unburied
}

// NewPipeline checks cfg and lists every problem. No I/O.
func NewPipeline(cfg Config) (*Pipeline, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.Policy = cfg.Policy.Effective()
	if cfg.Fingerprint == nil {
		cfg.Fingerprint = fingerprintBody
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	defaults(&cfg.Batch.Max, 100)
	for _, m := range slices.Backward(cfg.Middleware) {
		cfg.Handler = m(cfg.Handler)
	}
	return &Pipeline{cfg: cfg}, nil
}

func (c Config) check() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("consumer: Config."+field+": "+format, args...))
	}
	if c.Guard == nil {
		bad("Guard", "nil: make one with dedupe.New")
	}
	if (c.Handler == nil) == (c.BatchHandler == nil) {
		bad("Handler", "set Handler or BatchHandler, one of them")
	}
	if c.ID == nil {
		bad("ID", `nil: say where the business id is, such as consumer.IDFromHeader("msg_id")`)
	}
	if c.BatchHandler != nil && len(c.Middleware) > 0 {
		bad("Middleware", "does not go with BatchHandler; wrap the batch handler itself")
	}
	for i, m := range c.Middleware {
		if m == nil {
			bad("Middleware", "[%d]: nil", i)
		}
	}
	if c.Batch.Max < 0 || c.Batch.Wait < 0 {
		bad("Batch", "%d messages, %v: neither may be negative", c.Batch.Max, c.Batch.Wait)
	}
	for i, h := range c.Hooks {
		if !isHook(h) {
			bad("Hooks", "[%d]: %T implements no Hook interface of package consumer", i, h)
		}
	}
	for _, p := range c.Policy.Validate() {
		errs = append(errs, fmt.Errorf("consumer: Config.Policy: %w", p))
	}
	if c.Guard != nil && c.Guard.Mode() != dedupe.RedisOnly && c.Policy.StoreOutage == OutageProcessUnprotected {
		bad("Policy", "store_outage: %v is for redis-only; %v waits, and loses nothing", c.Policy.StoreOutage, c.Guard.Mode())
	}
	for _, n := range c.Policy.Retry.Permanent {
		if n != "" && c.Errors[n] == nil {
			known := strings.Join(slices.Sorted(maps.Keys(c.Errors)), ", ")
			bad("Policy", "retry.permanent: no error is named %q; Config.Errors has: %s", n, known)
		}
	}
	return errors.Join(errs...)
}

// Check asks the stores and compares their settings with the policy's, and logs what is promised: runners call it before the first
// message. Fields of env that the policy knows may be left zero. An error joins what was refused.
func (p *Pipeline) Check(ctx context.Context, env dedupe.Environment) (dedupe.Report, error) {
	return p.CheckWith(ctx, env, p.cfg.Policy.DeadLetter.Topic)
}

// CheckWith is Check for runners that know the group: deadLetters is the topic that the log names, empty where nobody knows it.
func (p *Pipeline) CheckWith(ctx context.Context, env dedupe.Environment, deadLetters string) (dedupe.Report, error) {
	pol, log := p.cfg.Policy, p.cfg.Logger
	pol.DeadLetter.Topic = deadLetters
	defaults(&env.HandlerTimeout, pol.HandlerTimeout)
	defaults(&env.DrainTimeout, pol.DrainTimeout)
	defaults(&env.Concurrency, pol.Concurrency)
	defaults(&env.LongestDelay, pol.LongestTier())
	rep, err := p.cfg.Guard.Check(ctx, env)
	for _, f := range rep.Findings {
		level := slog.LevelWarn
		if f.Refuse {
			level = slog.LevelError
		}
		log.Log(ctx, level, "setting", "code", f.Code, "what", f.What, "remedy", f.Remedy, "refused", f.Refuse)
	}
	if err != nil {
		return rep, err
	}
	log.InfoContext(ctx, "promise", "scope", p.cfg.Guard.Scope(), "promise", rep.Promise)
	log.InfoContext(ctx, "policy", "policy", pol.String())
	if pol.StoreOutage == OutageProcessUnprotected {
		log.WarnContext(ctx, "store_outage is process_unprotected: while Redis is away, duplicates are applied again")
	}
	return rep, nil
}

// Ready asks the guard's authority whether it answers: for adapters that paused after an Outage.
func (p *Pipeline) Ready(ctx context.Context) error { return p.cfg.Guard.Ready(ctx) }

// Policy is the effective one, defaults filled in.
func (p *Pipeline) Policy() Policy { return p.cfg.Policy }

// Logger is the effective one: what an adapter logs to when it was given none.
func (p *Pipeline) Logger() *slog.Logger { return p.cfg.Logger }

// Guard is Config.Guard.
func (p *Pipeline) Guard() *dedupe.Guard { return p.cfg.Guard }

// Batch is the effective Config.Batch: Max is 1 for a pipeline with a Handler, and the adapter calls Process; otherwise ProcessBatch.
func (p *Pipeline) Batch() Batch {
	if p.cfg.BatchHandler == nil {
		return Batch{Max: 1}
	}
	return p.cfg.Batch
}

// isPermanent says whether err ends retries, by Permanent or by a name in the policy.
func (p *Pipeline) isPermanent(err error) bool {
	if IsPermanent(err) {
		return true
	}
	return slices.ContainsFunc(p.cfg.Policy.Retry.Permanent, func(n string) bool { return p.cfg.Errors[n](err) })
}
