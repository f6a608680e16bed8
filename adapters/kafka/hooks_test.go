package kafka_test

import (
	"context"
	"sync"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/dedupe/memstore"
)

func entry(name, value string) kafkago.ConfigEntry {
	return kafkago.ConfigEntry{ConfigName: name, ConfigValue: value}
}

// generations notes what HookRebalance says, and demands that no generation begins before the last one has ended.
type generations struct {
	mu   sync.Mutex
	list []int32
	open bool
	bad  []int32
}

func (g *generations) OnAssigned(_ context.Context, id int32, _ []kafka.TopicPartition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		g.bad = append(g.bad, id)
	}
	g.open = true
	g.list = append(g.list, id)
}

func (g *generations) OnRevoked(_ context.Context, id int32, _ []kafka.TopicPartition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		g.bad = append(g.bad, id)
	}
	g.open = false
}

func (g *generations) all() []int32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list
}

// commits notes what HookCommit says, of any number of consumers, and which offsets went back.
type commits struct {
	mu     sync.Mutex
	last   map[kafka.TopicPartition]int64
	back   []kafka.TopicPartition
	failed []error
	n      int
}

func (c *commits) OnCommit(_ context.Context, _ int32, offsets map[kafka.TopicPartition]int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed = append(c.failed, err)
		return
	}
	c.n++
	if c.last == nil {
		c.last = map[kafka.TopicPartition]int64{}
	}
	for tp, o := range offsets {
		if o < c.last[tp] {
			c.back = append(c.back, tp)
		}
		c.last[tp] = o
	}
}

type lags struct {
	mu   sync.Mutex
	last map[kafka.TopicPartition]int64
}

func (l *lags) OnLag(_ context.Context, p kafka.TopicPartition, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[kafka.TopicPartition]int64{}
	}
	l.last[p] = n
}

func (l *lags) sum() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.last {
		n += x
	}
	return n
}

func TestHooks_RebalanceCommitAndLag_SeeWhatHappens(t *testing.T) {
	c := fake(t)
	recs := numbered(30, 9)
	produce(t, c.ListenAddrs(), "orders", recs...)
	gens, cs, ls := &generations{}, &commits{}, &lags{}
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.Hooks = []kafka.Hook{gens, cs, ls}
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	eventually(t, "lag 0 of three partitions", func() bool { return len(r.Lag()) == 3 && ls.sum() == 0 })
	require.NoError(t, r.stop())
	require.Len(t, gens.all(), 1)
	require.False(t, gens.open)
	require.Empty(t, gens.bad)
	require.Empty(t, cs.failed)
	require.Empty(t, cs.back)
	var total int64
	for _, o := range cs.last {
		total += o
	}
	require.EqualValues(t, len(recs), total)
}

// ownership notes a member's partitions, and commits of others.
type ownership struct {
	mu    sync.Mutex
	mine  map[kafka.TopicPartition]bool
	wrong []kafka.TopicPartition
}

func (o *ownership) OnAssigned(_ context.Context, _ int32, ps []kafka.TopicPartition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mine = map[kafka.TopicPartition]bool{}
	for _, p := range ps {
		o.mine[p] = true
	}
}

func (o *ownership) OnRevoked(context.Context, int32, []kafka.TopicPartition) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mine = nil
}

func (o *ownership) OnCommit(_ context.Context, _ int32, offsets map[kafka.TopicPartition]int64, _ error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for tp := range offsets {
		if !o.mine[tp] {
			o.wrong = append(o.wrong, tp)
		}
	}
}

func TestTrap02_Commits_NameOnlyPartitionsOfTheirGeneration(t *testing.T) {
	c := fake(t, kfake.SeedTopics(4, "orders"))
	log := memstore.NewLog()
	var e effects
	var owners []*ownership
	member := func() *running {
		o := &ownership{}
		owners = append(owners, o)
		cfg := config(t, c.ListenAddrs(), "orders")
		cfg.Hooks = []kafka.Hook{o}
		return start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply))
	}
	recs := numbered(200, 20)
	a := member()
	a.assigned(4)
	produce(t, c.ListenAddrs(), "orders", recs[:100]...)
	b := member()
	b.assigned(2)
	produce(t, c.ListenAddrs(), "orders", recs[100:]...)
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.NoError(t, a.stop())
	b.assigned(4)
	require.NoError(t, b.stop())
	for _, o := range owners {
		require.Empty(t, o.wrong)
	}
	e.once(t, recs)
}
