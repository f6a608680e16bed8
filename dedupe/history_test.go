package dedupe_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

var (
	historySeed  = flag.Uint64("history.seed", 0, "run this one history, and print it")
	historyCount = flag.Int("history.count", 400, "histories of each kind")
)

// A random history: several processes with messages in work, delivered twice, marked copies of dead letters, crashes at each step, calls that
// are refused or lost on the way there or back, leases that end, transactions that the server commits after their client gave up, a Redis that
// answers with what it knew at any earlier moment, and a database that is restored. While one process waits for a store, others make steps.
//
// The oracle is the effect. Transactional: never twice, whatever happened. Logged and RedisOnly: twice only as often as a process crashed, or gave
// up, between an effect and its completion, or the log was restored. Nothing is acknowledged that neither took effect nor lies as a letter
// nor comes again. Nothing counts as a failure but a handler's own. And once the faults end, every message is settled.
//
// These are the faults of the shared models, and leaving a rule out of the guard is found here as there: M: redisdone, busyforever, newowner,
// oldrunning, ownerreuse, okrelease, unkrelease, casnoinc, deadfirst, letteragain, noroute, deadbelieved, zerorows, storecounts, unkcounts.
func TestHistories(t *testing.T) {
	for _, kind := range []struct {
		name  string
		mode  dedupe.Mode
		redis bool
	}{
		{"transactional", dedupe.Transactional, true},
		{"transactional-without-redis", dedupe.Transactional, false},
		{"logged", dedupe.Logged, true},
		{"logged-without-redis", dedupe.Logged, false},
		{"redis-only", dedupe.RedisOnly, true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			first, last := uint64(1), uint64(*historyCount)
			if *historySeed != 0 {
				first, last = *historySeed, *historySeed
			}
			for seed := first; seed <= last; seed++ {
				if !runHistory(t, kind.mode, kind.redis, seed) {
					return
				}
			}
		})
	}
}

func runHistory(t *testing.T, mode dedupe.Mode, redis bool, seed uint64) (ok bool) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistory(t, mode, redis, seed)
		for range 40 {
			if h.wrong == "" {
				h.step()
			}
		}
		h.heal()
		if h.wrong != "" || *historySeed != 0 {
			t.Logf("history of seed %d:\n  %s", seed, strings.Join(h.lines, "\n  "))
		}
		if h.wrong != "" {
			t.Errorf("%s\nrun it again with -run 'TestHistories/%s$' -history.seed %d", h.wrong, strings.TrimPrefix(t.Name(), "TestHistories/"), seed)
		}
		ok = h.wrong == ""
	})
	return ok
}

// message is what the world knows about one id.
type message struct {
	id      string
	pending bool // an unmarked copy is not acknowledged
	marked  bool // a marked copy is not acknowledged
	letters int
	applied int // outside of the database
	failed  int // how often a handler failed by itself
	excuses int // how often the effect may have been repeated

	nothing map[dedupe.Owner]bool // owners that found nothing to do: their row stands for the effect
}

// work is one delivery in a process.
type work struct {
	m     *message
	claim *dedupe.Claim
	ctx   context.Context
	stop  func() error
	mark  bool
	epoch int
	busy  bool // a step of it is under way
	wrote bool // its effect is out
}

type node struct {
	name  string
	guard *dedupe.Guard
	works []*work
	life  int // grows with each crash
}

// call is a statement that its sender gave up and the store still executes.
type call struct {
	store string
	run   func()
}

type history struct {
	t        *testing.T
	mode     dedupe.Mode
	rng      *rand.Rand
	db       *memstore.Log
	mem      *memstore.Store
	nodes    []*node
	messages []*message
	lines    []string
	wrong    string
	calm     atomic.Bool
	depth    int
	epoch    int // grows with each restore

	onTheWay     []call
	lostReleases int // of Transactional mode

	started time.Time
	past    []memstore.StoreSnapshot
	backup  *memstore.LogSnapshot
	late    []*memstore.Tx // sent to the server, whose answer nobody waits for

	renewals sync.Mutex // renewals ask on their own goroutine, and have their own luck
	luck     *rand.Rand
}

func newHistory(t *testing.T, mode dedupe.Mode, redis bool, seed uint64) *history {
	h := &history{
		t: t, mode: mode, rng: rand.New(rand.NewPCG(seed, uint64(mode))), luck: rand.New(rand.NewPCG(seed, 99)),
		db: memstore.NewLog(), mem: memstore.New(), started: time.Now(),
	}
	for i := range 1 + h.rng.IntN(3) {
		n := &node{name: fmt.Sprintf("p%d", i+1)}
		h.nodes = append(h.nodes, n)
		h.start(n, redis)
	}
	for i := range 1 + h.rng.IntN(2) {
		if mode == dedupe.Transactional && h.maybe(0.2) {
			h.leftover(string(rune('A' + i)))
		}
		h.messages = append(h.messages, &message{id: string(rune('A' + i)), pending: true, nothing: map[dedupe.Owner]bool{}})
	}
	return h
}

// leftover is a claim in the log that another mode left behind.
func (h *history) leftover(id string) {
	k, _ := dedupe.NewKey(scope, topic, id)
	r := h.db.Claim(context.Background(), []dedupe.ClaimRequest{{Key: k, Owner: "leftover", Lease: 2 * lease, Retention: time.Hour}})[0]
	if r.Err != nil {
		h.t.Fatal(r.Err)
	}
	h.note("log: %s is claimed by somebody who is gone", id)
}

func (h *history) start(n *node, redis bool) {
	cfg := dedupe.Config{Scope: scope, Mode: h.mode, Lease: lease, StopGrace: 2 * time.Second}
	if redis {
		cfg.Store = lyingStore{wiredStore{h.mem, h.wire(n, "redis")}, h}
	}
	if h.mode != dedupe.RedisOnly {
		cfg.Log = wiredLog{h.db, h.wire(n, "log")}
	}
	g, err := dedupe.New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	n.guard = g
}

// wire is where calls of n meet their faults, and where other processes get their turn.
func (h *history) wire(n *node, store string) *wire {
	bad := h.rng.Float64() * 0.5
	f := func(r *rand.Rand) fault {
		if h.calm.Load() || r.Float64() > bad {
			return fine
		}
		return []fault{refused, lostRequest, lostReply, later}[r.IntN(4)]
	}
	return &wire{
		queue: func(run func()) { h.onTheWay = append(h.onTheWay, call{store, run}) },
		plan: func(op string) fault {
			if op == "renew" {
				h.renewals.Lock()
				defer h.renewals.Unlock()
				return min(f(h.luck), lostReply) // not later: the queue is the main goroutine's
			}
			flt := f(h.rng)
			if op == "release" && (flt == lostReply || flt == later) && h.mode == dedupe.Transactional {
				h.lostReleases++
			}
			if flt != fine {
				h.note("    %s: %s %s: %v", n.name, store, op, flt)
			}
			return flt
		},
		before: func(op string) {
			if !slices.Contains([]string{"renew", "enter", "notemode", "remember"}, op) && !h.calm.Load() && h.depth < 2 && h.maybe(0.1) {
				h.depth++
				h.step()
				h.depth--
			}
		},
	}
}

// lyingStore answers claims with what Redis knew at any earlier moment.
type lyingStore struct {
	wiredStore
	h *history
}

func (s lyingStore) Claim(ctx context.Context, r []dedupe.ClaimRequest) []dedupe.Reply {
	h := s.h
	if h.mode != dedupe.RedisOnly && !h.calm.Load() && len(h.past) > 0 && h.maybe(0.2) {
		old := memstore.New()
		old.RestoreFrom(h.past[h.rng.IntN(len(h.past))])
		h.note("    redis answers from the past")
		return old.Claim(ctx, r)
	}
	return s.wiredStore.Claim(ctx, r)
}

func (h *history) maybe(p float64) bool { return h.rng.Float64() < p }

func (h *history) note(format string, args ...any) {
	h.lines = append(h.lines, fmt.Sprintf("%8v %s", time.Since(h.started).Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

func (h *history) fail(format string, args ...any) {
	h.note(format, args...)
	if h.wrong == "" {
		h.wrong = fmt.Sprintf(format, args...)
	}
}

// step is what happens next in the world.
func (h *history) step() {
	n := h.nodes[h.rng.IntN(len(h.nodes))]
	switch x := h.rng.Float64(); {
	case x < 0.35:
		h.deliver(n)
	case x < 0.75:
		h.work(n)
	case x < 0.80:
		d := time.Duration(h.rng.Int64N(int64(2 * lease)))
		if h.depth > 0 {
			d /= 20
		}
		h.note("time passes: %v", d.Round(time.Millisecond))
		time.Sleep(d)
	case x < 0.85:
		h.crash(n)
	case x < 0.90:
		h.operator()
	case x < 0.93:
		h.redisChanges()
	case x < 0.96:
		h.arrive()
	default:
		h.databaseChanges()
	}
}

// deliver brings n one to three copies of messages that are not settled, in one call.
func (h *history) deliver(n *node) {
	var ws []*work
	var ds []dedupe.Delivery
	for range 1 + h.rng.IntN(3) {
		m := h.messages[h.rng.IntN(len(h.messages))]
		mark := m.marked && (!m.pending || h.maybe(0.5))
		if !h.calm.Load() && !mark && !m.pending && h.maybe(0.3) {
			m.pending = true // a rebalance brings it again
		}
		if !m.pending && !mark {
			continue
		}
		d := delivery(m.id)
		d.Redriven, d.Alone = mark, h.maybe(0.2)
		ws, ds = append(ws, &work{m: m, mark: mark, epoch: h.epoch}), append(ds, d)
	}
	if len(ds) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if h.maybe(0.05) && !h.calm.Load() {
		cancel()
	}
	life := n.life
	outs, errs := n.guard.ClaimBatch(ctx, ds)
	for i, w := range ws {
		what := fmt.Sprintf("%s: delivery of %s", n.name, w.name())
		switch {
		case errs[i] != nil:
			h.note("%s: %v", what, errs[i])
			if !dedupe.IsOutage(errs[i]) {
				h.fail("%s: unexpected error %v", what, errs[i])
			}
		case outs[i].Verdict == dedupe.Claimed:
			h.note("%s: claimed", what)
			w.claim = outs[i].Claim
			if n.life != life {
				break // it died meanwhile
			}
			w.ctx, w.stop = n.guard.Hold(context.Background(), w.claim)
			n.works = append(n.works, w)
		default:
			h.note("%s: %v", what, outs[i].Verdict)
			if n.life == life {
				h.settled(w, outs[i].Verdict)
			}
		}
	}
}

func (w *work) name() string {
	if w.mark {
		return w.m.id + " (marked)"
	}
	return w.m.id
}

// settled acknowledges w if its verdict says so.
func (h *history) settled(w *work, v dedupe.Verdict) {
	m := w.m
	switch v {
	case dedupe.Claimed, dedupe.Done, dedupe.Dead:
	case dedupe.Busy:
		return
	default:
		h.fail("%s: verdict %v", w.name(), v)
		return
	}
	if w.mark && v == dedupe.Dead && h.effects(m) == 0 && m.letters == 0 {
		h.fail("LOST: a marked copy of %s is Dead, and there is no letter", m.id)
	}
	if w.epoch != h.epoch { // the broker replays it after the restore
		return
	}
	if w.mark {
		m.marked = false
	} else {
		m.pending = false
	}
	if h.effects(m) == 0 && m.letters == 0 && !m.marked && !m.pending {
		h.fail("LOST: %s is acknowledged as %v, did not take effect, and lies nowhere", w.name(), v)
	}
}

// effects of m that last.
func (h *history) effects(m *message) int {
	if h.mode == dedupe.Transactional {
		n, _ := h.db.Value(m.id).(int)
		if r := h.row(m); r.State == dedupe.StateDone && m.nothing[r.Owner] {
			n++
		}
		return n
	}
	return m.applied
}

func (h *history) crash(n *node) {
	h.note("%s: CRASH", n.name)
	n.life++
	for _, w := range n.works {
		if w.wrote && !w.busy {
			w.m.excuses++
		}
		if !w.busy {
			_ = w.stop()
		}
	}
	n.works = nil
	h.start(n, h.hasRedis())
}

func (h *history) hasRedis() bool {
	return h.mode == dedupe.RedisOnly || len(h.past) > 0 || h.redisUsed()
}

func (h *history) redisUsed() bool { return !strings.HasSuffix(h.t.Name(), "without-redis") }

// operator sends a letter again, and takes it out of the topic or leaves it.
func (h *history) operator() {
	m := h.messages[h.rng.IntN(len(h.messages))]
	if m.letters == 0 || m.marked {
		return
	}
	m.marked = true
	if h.maybe(0.5) {
		m.letters--
	}
	h.note("operator: sends %s again, %d letters lie", m.id, m.letters)
}

func (h *history) redisChanges() {
	if h.mode == dedupe.RedisOnly || !h.hasRedis() {
		return
	}
	switch h.rng.IntN(3) {
	case 0:
		h.note("redis: flushed")
		h.mem.Flush()
	case 1:
		h.past = append(h.past, h.mem.Snapshot())
	default:
		if len(h.past) > 0 {
			h.note("redis: rolled back")
			h.mem.RestoreFrom(h.past[h.rng.IntN(len(h.past))])
		}
	}
}

// arrive executes one of the statements that were on their way.
func (h *history) arrive() {
	if len(h.onTheWay) == 0 {
		return
	}
	i := h.rng.IntN(len(h.onTheWay))
	c := h.onTheWay[i]
	h.onTheWay = append(h.onTheWay[:i:i], h.onTheWay[i+1:]...)
	h.note("a statement arrives late at %s", c.store)
	c.run()
}

// databaseChanges: transactions that were left open commit; or a backup is made, or restored, once.
func (h *history) databaseChanges() {
	switch {
	case h.mode == dedupe.RedisOnly:
	case len(h.late) > 0:
		h.note("database: commits what was open: %v", h.late[0].Commit())
		h.late = h.late[1:]
	case h.backup == nil:
		h.note("database: backup")
		b := h.db.Snapshot()
		h.backup = &b
	case h.epoch == 0:
		h.note("database: RESTORED")
		h.epoch++
		h.late = nil
		h.onTheWay = slices.DeleteFunc(h.onTheWay, func(c call) bool { return c.store == "log" })
		h.db.RestoreFrom(*h.backup)
		if _, err := h.db.Restored(context.Background(), dedupe.Audit{}); err != nil {
			h.t.Fatal(err)
		}
		for _, m := range h.messages {
			m.pending = true // the broker's topic is replayed
			m.excuses++
			if h.mode != dedupe.Transactional {
				m.excuses += m.applied
			}
		}
	}
}

// heal ends the faults and settles everything.
func (h *history) heal() {
	h.calm.Store(true)
	h.note("the faults end")
	for _, tx := range h.late {
		h.note("database: commits what was open: %v", tx.Commit())
	}
	for len(h.onTheWay) > 0 {
		h.arrive()
	}
	unsettled := func() (left int) {
		for _, m := range h.messages {
			if m.pending || m.marked {
				left++
			}
		}
		for _, n := range h.nodes {
			left += len(n.works)
		}
		return left
	}
	for range 60 {
		if h.wrong != "" || unsettled() == 0 {
			break
		}
		for _, n := range h.nodes {
			for len(n.works) > 0 {
				h.work(n)
			}
			h.deliver(n)
		}
		time.Sleep(time.Second)
	}
	for _, n := range h.nodes {
		for _, w := range n.works {
			_ = w.stop()
		}
	}
	if h.wrong != "" {
		return
	}
	if unsettled() > 0 {
		h.fail("STUCK: messages are not settled long after the faults have ended")
	}
	for _, m := range h.messages {
		switch n := h.effects(m); {
		case h.mode == dedupe.Transactional && n > 1:
			h.fail("TWICE: %s took effect %d times", m.id, n)
		case n > 1+m.excuses:
			h.fail("TWICE: %s took effect %d times, with %d excuses", m.id, n, m.excuses)
		case n == 0 && m.letters == 0:
			h.fail("LOST: %s did not take effect", m.id)
		}
	}
}
