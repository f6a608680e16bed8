package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

type consumeCmd struct {
	services
	PurgeEvery time.Duration `default:"10m" help:"How often rows past their retention are deleted."`

	// For the demo, which runs workers as processes.
	Naive      bool `hidden:"" env:"-" help:"Apply without any deduplication."`
	Supervised bool `hidden:"" env:"-" help:"Write one JSON line per settled delivery to stdout, and stop when stdin ends."`
}

// Run consumes until ctx ends, drains, and returns nil.
func (c *consumeCmd) Run(ctx context.Context, t terminal) error {
	bad := append(c.validateStores(), c.validateDB()...)
	if c.PurgeEvery <= 0 {
		bad = append(bad, errors.New("--purge-every: must be positive, such as 10m"))
	}
	if err := problems(bad); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	settled := func() {}
	var hooks []consumer.Hook
	if c.Supervised {
		go stopAtEOF(os.Stdin, stop)
		lines := &lineWriter{enc: json.NewEncoder(t.out)}
		hooks, settled = append(hooks, lines), lines.write
	}
	log := slog.New(slog.NewTextHandler(t.err, nil))
	p, err := c.open(log)
	if err != nil {
		return err
	}
	defer p.close()
	if c.Naive {
		return consumeNaively(ctx, c.services, p.db, log, settled)
	}
	return p.consume(ctx, c.services, c.PurgeEvery, log, hooks)
}

// parts is what a consumer is made of.
type parts struct {
	policy consumer.Policy
	db     *sqlx.DB
	log    *sqlstore.Log         // nil in redis-only mode
	redis  redis.UniversalClient // nil without Redis
	guard  *dedupe.Guard
}

// redisLog is where go-redis writes beside its errors: dials that fail, again and again. The guard says when Redis is away.
type redisLog struct{ *slog.Logger }

// Printf is what go-redis calls.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, "go-redis", "says", fmt.Sprintf(format, args...))
	}
}

// open puts the parts together. It asks no service yet: the consumer checks them all when it starts.
func (s services) open(logger *slog.Logger) (*parts, error) {
	policy, err := s.policy()
	if err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	p := &parts{policy: policy}
	cfg := dedupe.Config{Scope: s.Group, Mode: s.Mode, Lease: s.Lease, Logger: logger}
	if p.db, err = sqlstore.Open(s.DB); err != nil {
		return nil, err
	}
	// A connection for each message in work, and some for the log. SQLite stays with its one.
	if has, need := p.db.Stats().MaxOpenConnections, policy.Concurrency+4; has > 1 && has < need {
		p.db.SetMaxOpenConns(need)
		p.db.SetMaxIdleConns(need)
	}
	if s.Mode != dedupe.RedisOnly {
		var cfgLog sqlstore.Config
		if s.Mode == dedupe.Logged { // the log renews the lease: two calls may time out before it is lost
			cfgLog.Timeout = min(2*time.Second, s.Lease/3)
		}
		p.log = sqlstore.New(p.db, cfgLog)
		cfg.Log = p.log
	}
	if s.Redis != "" {
		redis.SetLogger(redisLog{logger})
		if p.redis, err = redisstore.NewClient(s.Redis); err != nil {
			p.close()
			return nil, err
		}
		cfg.Store = redisstore.New(p.redis, redisstore.Config{})
	}
	if p.guard, err = dedupe.New(cfg); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *parts) close() {
	if p.redis != nil {
		p.redis.Close() //nolint:errcheck // nothing is in flight
	}
	if p.log != nil {
		p.log.Close() //nolint:errcheck // nothing is in flight
	}
	p.db.Close() //nolint:errcheck // nothing is in flight
}

// handler is the business code in the form that the mode needs. In transactional mode it shares the transaction of the log's
// row. Otherwise the effect is a transaction of its own, as any effect outside the log's database would be: a process that
// dies between the effect and its completion leaves it to be repeated, and check reports that.
func (p *parts) handler() consumer.Handler {
	if p.guard.Mode() == dedupe.Transactional {
		return consumer.JSON(sqlstore.Transactional(p.log, decrement))
	}
	return consumer.JSON(func(ctx context.Context, m consumer.Decoded[Order]) error {
		return inTx(ctx, p.db, func(tx *sqlx.Tx) error { return decrement(ctx, tx, m) })
	})
}

func (p *parts) consume(ctx context.Context, s services, purge time.Duration, log *slog.Logger, hooks []consumer.Hook) error {
	if err := p.requireTables(ctx); err != nil {
		return err
	}
	pipe, err := consumer.NewPipeline(consumer.Config{
		Guard: p.guard, ID: consumer.IDFromHeader(idHeader), Handler: p.handler(), Policy: p.policy, Logger: log, Hooks: hooks,
	})
	if err != nil {
		return err
	}
	running, stopPurge := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error { return p.guard.PurgeEvery(running, purge) })
	g.Go(func() error {
		defer stopPurge()
		return kafka.Run(ctx, kafka.Config{Brokers: s.Brokers, Topics: []string{s.Topic}, Session: s.Session, Logger: log}, pipe)
	})
	return g.Wait()
}

// requireTables is the clear error for a database in which reset has not run. A database that is away is waited for a while.
func (p *parts) requireTables(ctx context.Context) error {
	if p.log != nil {
		r, err := p.guard.Check(ctx, dedupe.Environment{})
		if slices.ContainsFunc(r.Findings, func(f dedupe.Finding) bool { return f.Code == "log-not-migrated" }) {
			return fmt.Errorf("%w (run reset first: it does that)", err)
		}
		if err != nil {
			return err
		}
	}
	if _, err := p.db.ExecContext(ctx, "SELECT quantity, opening FROM stock WHERE 1 = 0"); err != nil {
		return fmt.Errorf("read table stock: %w; run reset first, if the database is there", err)
	}
	return nil
}

// stopAtEOF calls stop when in ends: the demo has closed it, or has died.
func stopAtEOF(in io.Reader, stop func()) {
	io.Copy(io.Discard, bufio.NewReader(in)) //nolint:errcheck // however it ends, it has ended
	stop()
}

// lineWriter tells the demo about each settled delivery.
type lineWriter struct {
	mu  sync.Mutex
	enc *json.Encoder
}

// line is one settled delivery.
type line struct {
	Verdict string `json:"verdict"`
}

// OnSettled makes it a consumer.HookSettled.
func (l *lineWriter) OnSettled(_ context.Context, _ *consumer.Message, d consumer.Disposition, _ time.Duration) {
	if d.Action == consumer.Ack {
		l.writeLine(line{Verdict: d.Verdict.String()})
	}
}

func (l *lineWriter) write() { l.writeLine(line{Verdict: dedupe.Claimed.String()}) }

func (l *lineWriter) writeLine(x line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enc.Encode(x) //nolint:errcheck // nobody reads any more: stdin has ended, too, and we are stopping
}
