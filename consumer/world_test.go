package consumer_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what a nil Logger means
	goleak.VerifyTestMain(m)
}

// outage decides what a store answers: nil to let an operation through.
type outage struct {
	mu sync.Mutex
	f  func(op string) error
}

func (o *outage) set(f func(op string) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.f = f
}

// down answers err to the named operations, to all if none is named.
func (o *outage) down(err error, ops ...string) {
	o.set(func(op string) error {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return err
		}
		return nil
	})
}

func (o *outage) up() { o.set(nil) }

func (o *outage) err(op string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.f == nil {
		return nil
	}
	return o.f(op)
}

func guarded[Q any](o *outage, op string, reqs []Q, f func([]Q) []dedupe.Reply) []dedupe.Reply {
	err := o.err(op)
	if err == nil {
		return f(reqs)
	}
	reps := make([]dedupe.Reply, len(reqs))
	for i := range reps {
		reps[i].Err = err
	}
	return reps
}

// flakyStore and flakyLog are memory stores behind an outage.
type flakyStore struct {
	*memstore.Store
	*outage
}

func (s flakyStore) Claim(ctx context.Context, r []dedupe.ClaimRequest) []dedupe.Reply {
	return guarded(s.outage, "claim", r, func(r []dedupe.ClaimRequest) []dedupe.Reply { return s.Store.Claim(ctx, r) })
}

func (s flakyStore) Renew(ctx context.Context, r []dedupe.RenewRequest) []dedupe.Reply {
	return guarded(s.outage, "renew", r, func(r []dedupe.RenewRequest) []dedupe.Reply { return s.Store.Renew(ctx, r) })
}

func (s flakyStore) Complete(ctx context.Context, r []dedupe.CompleteRequest) []dedupe.Reply {
	return guarded(s.outage, "complete", r, func(r []dedupe.CompleteRequest) []dedupe.Reply { return s.Store.Complete(ctx, r) })
}

func (s flakyStore) Release(ctx context.Context, r []dedupe.ReleaseRequest) []dedupe.Reply {
	return guarded(s.outage, "release", r, func(r []dedupe.ReleaseRequest) []dedupe.Reply { return s.Store.Release(ctx, r) })
}

func (s flakyStore) Bury(ctx context.Context, r []dedupe.BuryRequest) []dedupe.Reply {
	return guarded(s.outage, "bury", r, func(r []dedupe.BuryRequest) []dedupe.Reply { return s.Store.Bury(ctx, r) })
}

func (s flakyStore) Inspect(ctx context.Context, k []dedupe.Key) ([]dedupe.Record, error) {
	if err := s.err("inspect"); err != nil {
		return nil, err
	}
	return s.Store.Inspect(ctx, k)
}

type flakyLog struct {
	*memstore.Log
	*outage
}

func (l flakyLog) Claim(ctx context.Context, r []dedupe.ClaimRequest) []dedupe.Reply {
	return guarded(l.outage, "claim", r, func(r []dedupe.ClaimRequest) []dedupe.Reply { return l.Log.Claim(ctx, r) })
}

func (l flakyLog) Renew(ctx context.Context, r []dedupe.RenewRequest) []dedupe.Reply {
	return guarded(l.outage, "renew", r, func(r []dedupe.RenewRequest) []dedupe.Reply { return l.Log.Renew(ctx, r) })
}

func (l flakyLog) Complete(ctx context.Context, r []dedupe.CompleteRequest) []dedupe.Reply {
	return guarded(l.outage, "complete", r, func(r []dedupe.CompleteRequest) []dedupe.Reply { return l.Log.Complete(ctx, r) })
}

func (l flakyLog) Release(ctx context.Context, r []dedupe.ReleaseRequest) []dedupe.Reply {
	return guarded(l.outage, "release", r, func(r []dedupe.ReleaseRequest) []dedupe.Reply { return l.Log.Release(ctx, r) })
}

func (l flakyLog) Bury(ctx context.Context, r []dedupe.BuryRequest) []dedupe.Reply {
	return guarded(l.outage, "bury", r, func(r []dedupe.BuryRequest) []dedupe.Reply { return l.Log.Bury(ctx, r) })
}

func (l flakyLog) Inspect(ctx context.Context, k []dedupe.Key) ([]dedupe.Record, error) {
	if err := l.err("inspect"); err != nil {
		return nil, err
	}
	return l.Log.Inspect(ctx, k)
}

func (l flakyLog) Incarnation(ctx context.Context) (dedupe.Incarnation, error) {
	if err := l.err("incarnation"); err != nil {
		return "", err
	}
	return l.Log.Incarnation(ctx)
}

// world is a Redis, a database, its stock movements, and the dead letters. It outlives processes.
type world struct {
	t       *testing.T
	mode    dedupe.Mode
	redis   *memstore.Store
	db      *memstore.Log
	redisIs outage
	dbIs    outage
	letters letters

	mu      sync.Mutex
	effects map[string]int // outside of the database: Logged and RedisOnly
}

func newWorld(t *testing.T, mode dedupe.Mode) *world {
	return &world{t: t, mode: mode, redis: memstore.New(), db: memstore.NewLog(), effects: map[string]int{}}
}

const lease = 12 * time.Second

// guard is a new process.
func (w *world) guard(change ...func(*dedupe.Config)) *dedupe.Guard {
	cfg := dedupe.Config{Scope: "inventory", Mode: w.mode, Store: flakyStore{w.redis, &w.redisIs}, Lease: lease}
	if w.mode != dedupe.RedisOnly {
		cfg.Log = flakyLog{w.db, &w.dbIs}
	}
	for _, f := range change {
		f(&cfg)
	}
	g, err := dedupe.New(cfg)
	require.NoError(w.t, err)
	return g
}

// pipeline is one more process whose handler does work and then takes effect: Transactional in the database, otherwise beside it.
func (w *world) pipeline(work consumer.Handler, change ...func(*consumer.Config)) *consumer.Pipeline {
	cfg := consumer.Config{Guard: w.guard(), ID: consumer.IDFromHeader("msg_id"), Handler: w.handler(work)}
	for _, f := range change {
		f(&cfg)
	}
	p, err := consumer.NewPipeline(cfg)
	require.NoError(w.t, err)
	return p
}

func (w *world) handler(work consumer.Handler) consumer.Handler {
	if w.mode == dedupe.Transactional {
		return memstore.Transactional(w.db, func(ctx context.Context, tx *memstore.Tx, m *consumer.Message) error {
			if err := work(ctx, m); err != nil {
				return err
			}
			n, _ := tx.Get(m.ID()).(int)
			tx.Set(m.ID(), n+1)
			return nil
		})
	}
	return func(ctx context.Context, m *consumer.Message) error {
		if err := work(ctx, m); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.effects[m.ID()]++
		return nil
	}
}

// applied is the oracle: how often the effect of id took place.
func (w *world) applied(id string) int {
	if w.mode == dedupe.Transactional {
		n, _ := w.db.Value(id).(int)
		return n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.effects[id]
}

func (w *world) state(id string) dedupe.Record {
	k, err := dedupe.NewKey("inventory", "orders", id)
	require.NoError(w.t, err)
	var s dedupe.Store = w.db
	if w.mode == dedupe.RedisOnly {
		s = w.redis
	}
	recs, err := s.Inspect(w.t.Context(), []dedupe.Key{k})
	require.NoError(w.t, err)
	return recs[0]
}

var modes = []dedupe.Mode{dedupe.Transactional, dedupe.Logged, dedupe.RedisOnly}

// inModes runs a story in each mode, in a bubble with its own time.
func inModes(t *testing.T, ms []dedupe.Mode, story func(t *testing.T, w *world)) {
	for _, mode := range ms {
		t.Run(mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { story(t, newWorld(t, mode)) })
		})
	}
}

// letters is a dead-letter queue in memory.
type letters struct {
	mu   sync.Mutex
	got  []consumer.DeadLetter
	fail error
	sent []consumer.DeadLetter
}

func (l *letters) Publish(_ context.Context, d consumer.DeadLetter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	l.got = append(l.got, d)
	return nil
}

func (l *letters) List(context.Context) iter.Seq2[consumer.DeadLetter, error] {
	l.mu.Lock()
	got := slices.Clone(l.got)
	l.mu.Unlock()
	return func(yield func(consumer.DeadLetter, error) bool) {
		for _, d := range got {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func (l *letters) Resend(_ context.Context, d consumer.DeadLetter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return l.fail
	}
	l.sent = append(l.sent, d)
	return nil
}

func (l *letters) reasons() (rs []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.got {
		rs = append(rs, d.Reason)
	}
	return rs
}

var offsets int64

// order is a delivery of message id on topic orders.
func order(id string) *consumer.Message {
	offsets++
	return &consumer.Message{
		Position: consumer.Position{Topic: "orders", Offset: offsets},
		Value:    []byte(`{"order":"` + id + `"}`),
		Headers:  consumer.Headers{{Name: "msg_id", Value: []byte(id)}},
	}
}

// resent is the copy of a letter that a redrive sends.
func resent(d consumer.DeadLetter) *consumer.Message {
	offsets++
	m := *d.Message
	m.Position = consumer.Position{Topic: d.Message.Origin.Topic, Offset: offsets}
	m.Origin = consumer.Position{}
	m.Headers = consumer.ResendHeaders(d)
	return &m
}

var errNoStock = errors.New("no stock")

func fine(context.Context, *consumer.Message) error { return nil }

func fails(context.Context, *consumer.Message) error { return errNoStock }
