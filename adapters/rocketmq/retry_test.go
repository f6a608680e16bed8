package rocketmq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/rocketmq"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

// failing returns a handler that fails, for each id, as often as times says, and then has its effect.
func failing(e *effects, times map[string]int, calls *effects) consumer.Handler {
	return func(ctx context.Context, m *consumer.Message) error {
		_ = calls.apply(ctx, m)
		n := 0
		for _, c := range calls.all() {
			if c.id == m.ID() {
				n++
			}
		}
		if n <= times[m.ID()] {
			return errTest
		}
		return e.apply(ctx, m)
	}
}

func oneInPlace(initial time.Duration) func(*consumer.Config) {
	return func(c *consumer.Config) {
		c.Policy.Retry = consumer.Retry{InPlace: 1, Backoff: consumer.Backoff{Initial: initial, Factor: 1, Max: initial, Jitter: 0.01}}
		c.Policy.Order = consumer.OrderNone
	}
}

// Trap 35: the first retry of a new group would take 40 s without its retry topic.
func TestTrap35_AFailureComesBackAfterTheNextDelayLevel_ByTheGuardsCount(t *testing.T) {
	w := newWorld(t, 1)
	w.send(t, record{"k", "id-0", "x"})
	var e, calls effects
	r := start(t, w.config(t), newPipe(t, newGuard(t, "shop", nil), failing(&e, map[string]int{"id-0": 2}, &calls), oneInPlace(1300*time.Millisecond)))
	eventually(t, "it took effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
	all := calls.all()
	require.Len(t, all, 3)
	for i, c := range all[1:] {
		wait := c.at.Sub(all[i].at)
		require.Greater(t, wait, 1800*time.Millisecond) // 1.3 s is rounded up to 2 s, never down to 1 s; the broker's clock is not ours
		require.Less(t, wait, 20*time.Second)
		require.Equal(t, i+1, c.m.Redeliveries)
		require.Equal(t, consumer.Position{Topic: w.topic, Partition: -1, Offset: c.m.Offset}, c.m.Origin)
		require.Equal(t, all[0].m.BrokerID, c.m.BrokerID)
		require.Equal(t, all[0].m.Headers, c.m.Headers)
	}
	require.Equal(t, consumer.Position{Topic: w.topic}, all[0].m.Position)
	w.requireCommitted(t, 1, 1)
}

func TestTier_IsADelayLevel(t *testing.T) {
	w := newWorld(t, 1)
	w.send(t, record{"k", "id-0", "x"})
	var e, calls effects
	r := start(t, w.config(t), newPipe(t, newGuard(t, "shop", nil), failing(&e, map[string]int{"id-0": 1}, &calls), oneInPlace(10*time.Millisecond), func(c *consumer.Config) {
		c.Policy.Retry.Tiers = []time.Duration{2500 * time.Millisecond}
	}))
	eventually(t, "it took effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
	all := calls.all()
	require.Greater(t, all[1].at.Sub(all[0].at), 2800*time.Millisecond)
}

func TestTrap27_APanicIsAFailureLikeAnError(t *testing.T) { panics(t, false) }

func panics(t *testing.T, orderly bool) {
	w := newWorld(t, 1)
	recs := numbered(10, 2)
	w.send(t, recs...)
	cfg := w.config(t)
	cfg.Orderly = orderly
	var e, calls effects
	h := failing(&e, map[string]int{"id-2": 1, "id-5": 2}, &calls)
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), func(ctx context.Context, m *consumer.Message) error {
		if err := h(ctx, m); err != nil {
			panic(err)
		}
		return nil
	}, oneInPlace(100*time.Millisecond)))
	eventually(t, "all took effect", func() bool { return e.len() == len(recs) })
	require.NoError(t, r.stop())
	require.Equal(t, len(recs), e.distinct())
	w.requireCommitted(t, 1, len(recs))
}

// Busy: another owner works on it. It is waited for in place, then the broker gets the message back, and nothing is counted.
func TestBusy_IsWaitedForInPlace_ThenHandedBackUncounted(t *testing.T) {
	w := newWorld(t, 1)
	g := newGuard(t, "shop", nil)
	out, err := g.Claim(t.Context(), dedupe.Delivery{Namespace: w.topic, ID: "id-0", Fingerprint: dedupe.NoFingerprint})
	require.NoError(t, err)
	_, unhold := g.Hold(t.Context(), out.Claim)
	w.send(t, record{"k", "id-0", "x"})
	var e effects
	backs := &backs{}
	r := start(t, w.config(t), newPipe(t, g, e.apply, func(c *consumer.Config) {
		c.Policy.Busy.Wait = 200 * time.Millisecond
		c.Fingerprint = func(*consumer.Message) (dedupe.Fingerprint, error) { return dedupe.NoFingerprint, nil }
		c.Hooks = []consumer.Hook{backs}
	}))
	eventually(t, "it was handed back twice", func() bool { return backs.count(consumer.WhyBusy) >= 2 })
	require.Zero(t, e.len())
	_, errs := g.Release(t.Context(), dedupe.ReleaseReason{HandBack: true}, out.Claim)
	require.NoError(t, errs[0])
	require.NoError(t, unhold())
	eventually(t, "it took effect", func() bool { return e.len() == 1 })
	require.NoError(t, r.stop())
	require.Zero(t, backs.count(consumer.Failed))
}

func TestBatchHandler_GetsSeveralMessagesOfAQueue(t *testing.T) {
	w := newWorld(t, 2)
	recs := numbered(60, 10)
	w.send(t, recs...)
	var e effects
	largest := make(chan int, 1000)
	r := start(t, w.config(t), newPipe(t, newGuard(t, "shop", nil), nil, func(c *consumer.Config) {
		c.Batch = consumer.Batch{Max: 8, Wait: 50 * time.Millisecond}
		c.BatchHandler = func(ctx context.Context, ms []*consumer.Message) error {
			largest <- len(ms)
			for _, m := range ms {
				_ = e.apply(ctx, m)
			}
			return nil
		}
	}))
	eventually(t, "all took effect", func() bool { return e.distinct() == len(recs) })
	require.NoError(t, r.stop())
	require.Equal(t, len(recs), e.len())
	w.requireCommitted(t, 2, len(recs))
	most := 0
	for close(largest); ; {
		n, more := <-largest
		if !more {
			break
		}
		most = max(most, n)
	}
	require.Equal(t, 8, most)
}

func TestRoutes_ShareAGroup_EachWithItsPipeline(t *testing.T) {
	w := newWorld(t, 2)
	other := w
	other.topic += "-b"
	other.createTopic(t, other.topic, 1)
	w.send(t, record{"k", "id-0", "a"})
	other.send(t, record{"k", "id-0", "b"})
	g := newGuard(t, "shop", nil)
	var a, b, calls effects
	r := start(t, w.config(t), newPipe(t, g, a.apply),
		rocketmq.Route{Topics: []string{other.topic}, Pipeline: newPipe(t, g, failing(&b, map[string]int{"id-0": 1}, &calls), oneInPlace(time.Millisecond))})
	eventually(t, "both took effect, the second after a retry", func() bool { return a.len() == 1 && b.len() == 1 })
	require.NoError(t, r.stop())
	require.Equal(t, "a", a.all()[0].value)
	require.Equal(t, "b", b.all()[0].value)
}
