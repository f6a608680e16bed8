package kafka_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// downLog is a log that can be away.
type downLog struct {
	*memstore.Log
	down   atomic.Bool
	probes atomic.Int64
	asked  atomic.Int64 // claims while it was away
}

func (l *downLog) Claim(ctx context.Context, reqs []dedupe.ClaimRequest) []dedupe.Reply {
	if l.down.Load() {
		l.asked.Add(1)
		out := make([]dedupe.Reply, len(reqs))
		for i := range out {
			out[i].Err = dedupe.ErrUnavailable
		}
		return out
	}
	return l.Log.Claim(ctx, reqs)
}

func (l *downLog) Incarnation(ctx context.Context) (dedupe.Incarnation, error) {
	l.probes.Add(1)
	if l.down.Load() {
		return "", dedupe.ErrUnavailable
	}
	return l.Log.Incarnation(ctx)
}

func (l *downLog) Inspect(ctx context.Context, keys []dedupe.Key) ([]dedupe.Record, error) {
	l.probes.Add(1)
	if l.down.Load() {
		return nil, dedupe.ErrUnavailable
	}
	return l.Log.Inspect(ctx, keys)
}

func TestOutage_FetchingStops_MembershipGoesOn_NothingIsLostOrCounted(t *testing.T) {
	c := fake(t)
	log := &downLog{Log: memstore.NewLog()}
	var e effects
	gens := &generations{}
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.Hooks = []kafka.Hook{gens}
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), e.apply, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 }))
	r.assigned(3)
	log.down.Store(true)
	recs := numbered(100, 10)
	produce(t, c.ListenAddrs(), "orders", recs...)
	eventually(t, "paused by the outage", func() bool { return r.State().Phase == consumer.PhasePaused })
	require.ErrorIs(t, r.State().Err, dedupe.ErrUnavailable)
	heartbeats := observe(c, kmsg.Heartbeat)
	fetches := observe(c, kmsg.Fetch)
	eventually(t, "heartbeats go on for longer than the session", func() bool { return heartbeats() >= 5 })
	require.LessOrEqual(t, fetches(), 3, "but for those that were under way")
	require.Zero(t, e.len())
	require.Zero(t, sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)))

	log.down.Store(false)
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.Equal(t, consumer.PhaseRunning, r.State().Phase)
	require.NoError(t, r.stop())
	e.once(t, recs)
	require.Len(t, gens.all(), 1, "no partition moved")
}

// Copies of every route run in the first route's pool, which stays open when the store of another one is away.
func TestOutage_OfAnotherRoute_PausesItsCopiesOnRetryTopics(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders", "refunds"))
	log := &downLog{Log: memstore.NewLog()}
	var e effects
	var runs atomic.Int64
	refunds := newPipe(t, newGuard(t, "refunds", log), func(ctx context.Context, m *consumer.Message) error {
		if runs.Add(1) == 1 {
			log.down.Store(true)
			return errStock
		}
		return e.apply(ctx, m)
	}, tiers(5, 200*time.Millisecond))
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply), kafka.Route{Topics: []string{"refunds"}, Pipeline: refunds})
	produce(t, c.ListenAddrs(), "refunds", record{"k", "refund", "v"})
	eventually(t, "paused by the outage", func() bool { return r.State().Phase == consumer.PhasePaused })
	probes := log.probes.Load()
	eventually(t, "the store was asked a few times", func() bool { return log.probes.Load() >= probes+4 })
	require.EqualValues(t, 1, log.asked.Load(), "the copy does not ask as long as the gate is closed")
	produce(t, c.ListenAddrs(), "orders", record{"k", "order", "v"})
	eventually(t, "the other route goes on", func() bool { return e.len() == 1 })
	log.down.Store(false)
	eventually(t, "both effects", func() bool { return e.len() == 2 })
	require.NoError(t, r.stop())
	require.Equal(t, []string{"order", "refund"}, e.ids())
}

func TestOutage_StoppedMeanwhile_DropsWhatWaitsUncommitted(t *testing.T) {
	c := fake(t)
	log := &downLog{Log: memstore.NewLog()}
	var e effects
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", log), e.apply))
	r.assigned(3)
	log.down.Store(true)
	recs := numbered(100, 10)
	produce(t, c.ListenAddrs(), "orders", recs...)
	eventually(t, "paused by the outage", func() bool { return r.State().Phase == consumer.PhasePaused })
	begun := time.Now()
	require.NoError(t, r.stop())
	require.Less(t, time.Since(begun), 5*time.Second)
	require.Zero(t, sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)))

	log.down.Store(false)
	r = start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", log), e.apply))
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.NoError(t, r.stop())
	e.once(t, recs)
}

func TestPause_NothingBeginsUntilResume_AndLagGrowsVisibly(t *testing.T) {
	c := fake(t)
	var e effects
	gens := &generations{}
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.Hooks = []kafka.Hook{gens}
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	r.assigned(3)
	r.Pause()
	require.Equal(t, consumer.PhasePaused, r.State().Phase)
	require.NoError(t, r.State().Err)
	recs := numbered(90, 9)
	produce(t, c.ListenAddrs(), "orders", recs...)
	eventually(t, "lag of paused partitions", func() bool {
		var n int64
		for _, x := range r.Lag() {
			n += x
		}
		return n == 90
	})
	require.Zero(t, e.len())
	r.Resume()
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	eventually(t, "no lag", func() bool {
		for _, x := range r.Lag() {
			if x != 0 {
				return false
			}
		}
		return true
	})
	require.NoError(t, r.stop())
	e.once(t, recs)
	require.Len(t, gens.all(), 1)
}

func TestPause_BeforeRun_HoldsFromTheBeginning(t *testing.T) {
	c := fake(t)
	produce(t, c.ListenAddrs(), "orders", numbered(10, 5)...)
	var e effects
	cons, err := kafka.NewConsumer(config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply))
	require.NoError(t, err)
	cons.Pause()
	r := startThis(t, cons)
	eventually(t, "paused", func() bool { return r.State().Phase == consumer.PhasePaused })
	heartbeats := observe(c, kmsg.Heartbeat)
	eventually(t, "it is a member", func() bool { return heartbeats() >= 3 })
	require.Zero(t, e.len())
	cons.Resume()
	eventually(t, "all effects", func() bool { return e.len() == 10 })
}

// large makes records of n KiB in one partition.
func large(n, kib int) []record {
	recs := numbered(n, n)
	value := make([]byte, kib<<10)
	for i := range value {
		value[i] = 'x'
	}
	for i := range recs {
		recs[i].value = string(value)
	}
	return recs
}

func TestBackpressure_Backlog_IsFetchedOnlyAsFastAsItIsWorkedOff(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	recs := large(2000, 8) // 16 MiB
	for i := 0; i < len(recs); i += 100 {
		produce(t, c.ListenAddrs(), "orders", recs[i:i+100]...)
	}
	var e effects
	release := make(chan struct{})
	begun := make(chan struct{}, len(recs))
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.MaxWaiting = 2 << 20
	fetches := observe(c, kmsg.Fetch)
	h := func(ctx context.Context, m *consumer.Message) error {
		begun <- struct{}{}
		<-release
		return e.apply(ctx, &consumer.Message{Key: m.Key, Position: m.Position})
	}
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), h))
	for range 16 {
		<-begun // as many as Policy.Concurrency
	}
	heartbeats := observe(c, kmsg.Heartbeat)
	eventually(t, "some time has passed", func() bool { return heartbeats() >= 4 })
	require.LessOrEqual(t, fetches(), 4, "2 MiB wait, and a fetch brings up to 1 MiB")
	close(release)
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.Greater(t, fetches(), 14)
	require.NoError(t, r.stop())
	require.EqualValues(t, len(recs), sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)))
}

func TestBackpressure_OneMessageHeld_BoundsWhatIsDoneAheadOfIt(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	recs := large(1000, 10)
	for i := 0; i < len(recs); i += 50 {
		produce(t, c.ListenAddrs(), "orders", recs[i:i+50]...)
	}
	var e effects
	release := make(chan struct{})
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.MaxAhead = 50
	h := func(ctx context.Context, m *consumer.Message) error {
		if m.Offset == 0 {
			<-release
		}
		return e.apply(ctx, &consumer.Message{Key: m.Key, Position: m.Position})
	}
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), h))
	eventually(t, "those that may go ahead", func() bool { return e.len() >= 50 })
	heartbeats := observe(c, kmsg.Heartbeat)
	eventually(t, "some time has passed", func() bool { return heartbeats() >= 4 })
	require.Less(t, e.len(), 50+120, "50, and what one more fetch of 1 MiB brings")
	require.Zero(t, sum(committed(t, c.ListenAddrs(), "shop", "orders", 1)), "the watermark is held")
	close(release)
	eventually(t, "all effects", func() bool { return e.len() == len(recs) })
	require.NoError(t, r.stop())
}

func TestTrap07_CompactedTopic_IsReadToItsEnd(t *testing.T) {
	c := fake(t)
	require.NoError(t, c.CreateTopic("compacted", 1, map[string]string{"cleanup.policy": "compact"}))
	var last []record
	for round := range 20 { // each key again and again: most offsets become holes
		recs := numbered(10, 10)
		for i := range recs {
			recs[i].id = fmt.Sprint(recs[i].id, "-", round)
		}
		produce(t, c.ListenAddrs(), "compacted", recs...)
		last = recs
	}
	c.Compact()
	var e effects
	r := start(t, config(t, c.ListenAddrs(), "compacted"), newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "the end", func() bool { return sum(committed(t, c.ListenAddrs(), "shop", "compacted", 1)) == 200 })
	eventually(t, "no lag", func() bool { return r.Lag()[kafka.TopicPartition{Topic: "compacted"}] == 0 })
	require.NoError(t, r.stop())
	require.Less(t, e.len(), 200, "there are holes")
	got := e.ids()
	for _, x := range last {
		require.Contains(t, got, x.id)
	}
}
