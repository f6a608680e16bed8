package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // most of what is tested here is worth a warning
	goleak.VerifyTestMain(m)
}

const (
	scope = "inventory"
	topic = "orders"
	lease = 12 * time.Second
)

// fault is what happens to one call on the wire between a guard and a store.
type fault int

const (
	fine        fault = iota
	refused           // surely not done: ErrUnavailable
	lostRequest       // not done, but nobody can know: ErrOutcomeUnknown
	lostReply         // done, but nobody can know: ErrOutcomeUnknown
	broken            // not done, and repeating does not mend it
	locked            // not done: the row is in another's transaction
	later             // on its way, and done later: ErrOutcomeUnknown
)

var (
	errBroken  = errors.New("value out of range")
	errHandler = errors.New("no such article")
)

func (f fault) err() error {
	switch f {
	case refused:
		return dedupe.ErrUnavailable
	case lostRequest, lostReply, later:
		return dedupe.ErrOutcomeUnknown
	case broken:
		return errBroken
	case locked:
		return dedupe.ErrBusy
	}
	return nil
}

func (f fault) String() string {
	return [...]string{"fine", "refused", "lost-request", "lost-reply", "broken", "locked", "later"}[f]
}

// wire stands between a guard and a store: it remembers what was asked and lets a plan decide what gets through.
type wire struct {
	mu     sync.Mutex
	plan   func(op string) fault
	before func(op string)  // runs before the call, without the lock
	queue  func(run func()) // takes calls that are done later
	asked  []string
}

func (w *wire) fault(op string) fault {
	w.mu.Lock()
	w.asked = append(w.asked, op)
	plan, before := w.plan, w.before
	w.mu.Unlock()
	if before != nil {
		before(op)
	}
	if plan == nil {
		return fine
	}
	return plan(op)
}

// fails makes the named operations (all, if none is named) end with f from now on; fine mends them.
func (w *wire) fails(f fault, ops ...string) {
	w.plans(func(op string) fault {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return f
		}
		return fine
	})
}

// failsOnce is fails for the next call of op only.
func (w *wire) failsOnce(f fault, op string) {
	once := false
	w.plans(func(o string) fault {
		if o == op && !once {
			once = true
			return f
		}
		return fine
	})
}

func (w *wire) plans(p func(op string) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.plan = p
}

func (w *wire) pauses(before func(op string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
}

// calls is how often op was asked.
func (w *wire) calls(op string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.asked {
		if o == op {
			n++
		}
	}
	return n
}

func (w *wire) forgetCalls() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = nil
}

func through[Q any](w *wire, op string, ctx context.Context, reqs []Q, f func(context.Context, []Q) []dedupe.Reply) []dedupe.Reply {
	flt := w.fault(op)
	var reps []dedupe.Reply
	if flt == fine || flt == lostReply {
		reps = f(ctx, reqs)
	}
	if flt == fine {
		return reps
	}
	if flt == later {
		reqs := slices.Clone(reqs)
		w.queue(func() { f(context.Background(), reqs) })
	}
	reps = make([]dedupe.Reply, len(reqs))
	for i := range reps {
		reps[i].Err = fmt.Errorf("wire: %s: %w", op, flt.err())
	}
	return reps
}

// wiredStore is a memstore.Store at the other end of a wire.
type wiredStore struct {
	*memstore.Store
	*wire
}

func (s wiredStore) Claim(ctx context.Context, r []dedupe.ClaimRequest) []dedupe.Reply {
	return through(s.wire, "claim", ctx, r, s.Store.Claim)
}

func (s wiredStore) Renew(ctx context.Context, r []dedupe.RenewRequest) []dedupe.Reply {
	return through(s.wire, "renew", ctx, r, s.Store.Renew)
}

func (s wiredStore) Complete(ctx context.Context, r []dedupe.CompleteRequest) []dedupe.Reply {
	return through(s.wire, "complete", ctx, r, s.Store.Complete)
}

func (s wiredStore) Release(ctx context.Context, r []dedupe.ReleaseRequest) []dedupe.Reply {
	return through(s.wire, "release", ctx, r, s.Store.Release)
}

func (s wiredStore) Bury(ctx context.Context, r []dedupe.BuryRequest) []dedupe.Reply {
	return through(s.wire, "bury", ctx, r, s.Store.Bury)
}

func (s wiredStore) Learn(ctx context.Context, r []dedupe.Record, d time.Duration) []error {
	f := s.fault("learn")
	if f == fine || f == lostReply {
		if errs := s.Store.Learn(ctx, r, d); f == fine {
			return errs
		}
	}
	errs := make([]error, len(r))
	for i := range errs {
		errs[i] = f.err()
	}
	return errs
}

func (s wiredStore) Inspect(ctx context.Context, k []dedupe.Key) ([]dedupe.Record, error) {
	if f := s.fault("inspect"); f != fine {
		return nil, f.err()
	}
	return s.Store.Inspect(ctx, k)
}

func (s wiredStore) Forget(ctx context.Context, k dedupe.Key, a dedupe.Audit) error {
	if f := s.fault("forget"); f != fine {
		return f.err()
	}
	return s.Store.Forget(ctx, k, a)
}

func (s wiredStore) Remember(ctx context.Context, scope string) (bool, error) {
	if f := s.fault("remember"); f != fine {
		return false, f.err()
	}
	return s.Store.Remember(ctx, scope)
}

func (s wiredStore) NoteMode(ctx context.Context, scope string, m dedupe.Mode) (dedupe.Mode, error) {
	if f := s.fault("notemode"); f != fine {
		return 0, f.err()
	}
	return s.Store.NoteMode(ctx, scope, m)
}

func (s wiredStore) ChangeMode(ctx context.Context, scope string, m dedupe.Mode, a dedupe.Audit) error {
	if f := s.fault("changemode"); f != fine {
		return f.err()
	}
	return s.Store.ChangeMode(ctx, scope, m, a)
}

// wiredLog is a memstore.Log at the other end of a wire. The handlers' transactions do not go through it.
type wiredLog struct {
	*memstore.Log
	*wire
}

func (l wiredLog) Claim(ctx context.Context, r []dedupe.ClaimRequest) []dedupe.Reply {
	return through(l.wire, "claim", ctx, r, l.Log.Claim)
}

func (l wiredLog) Renew(ctx context.Context, r []dedupe.RenewRequest) []dedupe.Reply {
	return through(l.wire, "renew", ctx, r, l.Log.Renew)
}

func (l wiredLog) Complete(ctx context.Context, r []dedupe.CompleteRequest) []dedupe.Reply {
	return through(l.wire, "complete", ctx, r, l.Log.Complete)
}

func (l wiredLog) Release(ctx context.Context, r []dedupe.ReleaseRequest) []dedupe.Reply {
	return through(l.wire, "release", ctx, r, l.Log.Release)
}

func (l wiredLog) Bury(ctx context.Context, r []dedupe.BuryRequest) []dedupe.Reply {
	return through(l.wire, "bury", ctx, r, l.Log.Bury)
}

func (l wiredLog) Inspect(ctx context.Context, k []dedupe.Key) ([]dedupe.Record, error) {
	if f := l.fault("inspect"); f != fine {
		return nil, f.err()
	}
	return l.Log.Inspect(ctx, k)
}

func (l wiredLog) Enter(ctx context.Context, r dedupe.ScopeRow) (dedupe.ScopeRow, error) {
	if f := l.fault("enter"); f != fine {
		return dedupe.ScopeRow{}, f.err()
	}
	return l.Log.Enter(ctx, r)
}

func (l wiredLog) Incarnation(ctx context.Context) (dedupe.Incarnation, error) {
	if f := l.fault("incarnation"); f != fine {
		return "", f.err()
	}
	return l.Log.Incarnation(ctx)
}

func (l wiredLog) Forget(ctx context.Context, k dedupe.Key, a dedupe.Audit) error {
	if f := l.fault("forget"); f != fine {
		return f.err()
	}
	return l.Log.Forget(ctx, k, a)
}

func (l wiredLog) Purge(ctx context.Context, scope string, d time.Duration, limit int) (int, error) {
	if f := l.fault("purge"); f != fine {
		return limit, f.err()
	}
	return l.Log.Purge(ctx, scope, d, limit)
}

// seen is what the hooks were shown.
type seen struct {
	mu        sync.Mutex
	anomalies []string
	lost      []dedupe.Key
	verdicts  []dedupe.VerdictEvent
	calls     []string
}

func (s *seen) OnAnomaly(_ context.Context, code string, _ dedupe.Key, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.anomalies = append(s.anomalies, code)
}

func (s *seen) OnLeaseLost(_ context.Context, k dedupe.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = append(s.lost, k)
}

func (s *seen) OnVerdict(_ context.Context, e dedupe.VerdictEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.verdicts = append(s.verdicts, e)
}

func (s *seen) OnStoreCall(_ context.Context, store, op string, _ int, _ time.Duration, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, store+" "+op)
}

func (s *seen) codes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.anomalies)
}

func (s *seen) losses() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lost)
}

// world is one database, one Redis, and processes that share them. An effect in Transactional mode is a number in the database; in
// the other modes it is out in the world, where nothing takes it back.
type world struct {
	t    testing.TB
	mode dedupe.Mode
	db   *memstore.Log
	mem  *memstore.Store

	log   wiredLog
	redis wiredStore
	hooks *seen
	*dedupe.Guard

	mu      sync.Mutex
	outside map[string]int
	letters map[string]int
}

// newWorld has one process, whose guard is w.Guard.
func newWorld(t testing.TB, mode dedupe.Mode, change ...func(*dedupe.Config)) *world {
	w := &world{
		t: t, mode: mode, db: memstore.NewLog(), mem: memstore.New(), hooks: &seen{},
		outside: map[string]int{}, letters: map[string]int{},
	}
	w.log, w.redis = wiredLog{w.db, &wire{}}, wiredStore{w.mem, &wire{}}
	w.Guard = w.process(change...)
	return w
}

// process starts another one in the same scope.
func (w *world) process(change ...func(*dedupe.Config)) *dedupe.Guard {
	w.t.Helper()
	cfg := dedupe.Config{Scope: scope, Mode: w.mode, Store: w.redis, Lease: lease, Hooks: []dedupe.Hook{w.hooks}}
	if w.mode != dedupe.RedisOnly {
		cfg.Log = w.log
	}
	for _, f := range change {
		f(&cfg)
	}
	g, err := dedupe.New(cfg)
	require.NoError(w.t, err)
	return g
}

func withoutRedis(c *dedupe.Config) { c.Store = nil }

// apply takes effect, and in Transactional mode records it in the same transaction.
func (w *world) apply(ctx context.Context, c *dedupe.Claim) error {
	id := c.Key().ID()
	if w.mode == dedupe.Transactional {
		return w.db.InTx(ctx, func(tx *memstore.Tx) error {
			n, _ := tx.Get(id).(int)
			tx.Set(id, n+1)
			return nil
		})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outside[id]++
	return nil
}

// effects is how often apply took effect for id.
func (w *world) effects(id string) int {
	if w.mode == dedupe.Transactional {
		n, _ := w.db.Value(id).(int)
		return n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.outside[id]
}

func (w *world) key(id string) dedupe.Key {
	k, err := dedupe.NewKey(scope, topic, id)
	require.NoError(w.t, err)
	return k
}

// row is what the log has about id.
func (w *world) row(id string) dedupe.Record { return inspect(w.t, w.db, w.key(id)) }

// inRedis is what Redis has about id.
func (w *world) inRedis(id string) dedupe.Record { return inspect(w.t, w.mem, w.key(id)) }

// authority is the record that decides about id.
func (w *world) authority(id string) dedupe.Record {
	if w.mode == dedupe.RedisOnly {
		return w.inRedis(id)
	}
	return w.row(id)
}

// authorityWire leads to the store that decides.
func (w *world) authorityWire() *wire {
	if w.mode == dedupe.RedisOnly {
		return w.redis.wire
	}
	return w.log.wire
}

func inspect(t testing.TB, s dedupe.Store, k dedupe.Key) dedupe.Record {
	t.Helper()
	recs, err := s.Inspect(context.Background(), []dedupe.Key{k})
	require.NoError(t, err)
	return recs[0]
}

// deliver is one delivery whose handler applies its effect.
func (w *world) deliver(id string) (dedupe.Outcome, error) {
	return w.Do(context.Background(), delivery(id), w.apply)
}

// claim is a claim that must be won.
func (w *world) claim(g *dedupe.Guard, d dedupe.Delivery) *dedupe.Claim {
	w.t.Helper()
	out, err := g.Claim(context.Background(), d)
	require.NoError(w.t, err)
	require.Equal(w.t, dedupe.Claimed, out.Verdict)
	return out.Claim
}

// letter publishes a dead letter.
func (w *world) letter(id string) func(context.Context) error {
	return func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.letters[id]++
		return nil
	}
}

// bury makes id dead, its letter written.
func (w *world) bury(g *dedupe.Guard, d dedupe.Delivery) {
	w.t.Helper()
	v, err := g.Bury(context.Background(), w.claim(g, d), "for the test", w.letter(d.ID))
	require.NoError(w.t, err)
	require.Equal(w.t, dedupe.Dead, v)
}

// closes asks g to close and requires that nothing is in flight.
func closes(t testing.TB, g *dedupe.Guard) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	require.NoError(t, g.Close(ctx), "a claim is still in flight")
}

func delivery(id string) dedupe.Delivery {
	return dedupe.Delivery{ID: id, Namespace: topic, Fingerprint: dedupe.FingerprintOf([]byte("body of " + id))}
}

func redriven(id string) dedupe.Delivery {
	d := delivery(id)
	d.Redriven = true
	return d
}

var allModes = []dedupe.Mode{dedupe.Transactional, dedupe.Logged, dedupe.RedisOnly}

// inEachMode runs f in each of the modes.
func inEachMode(t *testing.T, modes []dedupe.Mode, f func(t *testing.T, mode dedupe.Mode)) {
	for _, m := range modes {
		t.Run(m.String(), func(t *testing.T) { f(t, m) })
	}
}
