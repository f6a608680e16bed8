//go:build !race

package rocketmq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/rocketmq"
	"github.com/idemq/idemq/consumer"
)

// Orderly consumption races inside of the client (processQueue.takeMessages asks a map whether it is empty that others write to), which the race
// detector finds at once. So these tests run without it; race_test.go starts them where it is on.

// Traps 24, 25 and 26: a failure keeps the queue, for as long as the policy says, and is counted by the guard.
func TestOrderly_Traps24To26_AFailedMessageKeepsItsPlace(t *testing.T) {
	w := newWorld(t, 1)
	recs := numbered(20, 2)
	w.send(t, recs...)
	cfg := w.config(t)
	cfg.Orderly = true
	var e, calls effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), failing(&e, map[string]int{"id-3": 3, "id-7": 2}, &calls), oneInPlace(200*time.Millisecond)))
	eventually(t, "all took effect", func() bool { return e.len() == len(recs) })
	require.NoError(t, r.stop())
	for i, x := range e.all() {
		require.Equal(t, recs[i].id, x.id)
	}
	require.Equal(t, len(recs)+5, calls.len(), "calls beside those that failed")
	w.requireCommitted(t, 1, len(recs))
}

func TestOrderly_Trap27_APanicIsAFailureLikeAnError(t *testing.T) { panics(t, true) }

func TestOrderly_Block_AKeyStandsStillAfterADeadLetter(t *testing.T) {
	w := newWorld(t, 1)
	w.send(t, record{"a", "id-0", "x"}, record{"b", "id-1", "x"}, record{"a", "id-2", "x"}, record{"b", "id-3", "x"})
	cfg := w.config(t)
	cfg.Orderly = true
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), func(ctx context.Context, m *consumer.Message) error {
		if m.ID() == "id-0" {
			return consumer.Permanent(errTest)
		}
		return e.apply(ctx, m)
	}, func(c *consumer.Config) { c.Policy.AfterLetter = consumer.Block }))
	eventually(t, "the queue is left alone", func() bool { return len(r.State().Left) == 1 })
	require.Equal(t, rocketmq.Running, r.State().Phase)
	require.NoError(t, r.stop())
	require.Equal(t, 1, e.len()) // of the other key, before the one that may not run
	w.requireCommitted(t, 1, 2)
}

func TestOrderly_Halt_Stop_EndsRunAndAcknowledgesNothingOfTheMessage(t *testing.T) {
	haltsStop(t, true)
}

func TestOrderly_Drain_LosesNothingAndRunsNothingTwice(t *testing.T) { drains(t, true) }

// Trap 34: the client sends messages back that are here for too long, although they wait or run. (It looks at their number without a lock.)
func TestExpired_Trap34_WhatWaitsTooLongIsDeliveredAgain_AndHasOneEffect(t *testing.T) {
	w := newWorld(t, 1)
	recs := numbered(8, 8)
	w.send(t, recs...)
	cfg := w.config(t)
	cfg.ConsumeTimeout = 2 * time.Second
	var e effects
	backs := &backs{}
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), func(ctx context.Context, m *consumer.Message) error {
		time.Sleep(700 * time.Millisecond) // work
		return e.apply(ctx, m)
	}, func(c *consumer.Config) {
		c.Policy = consumer.Policy{Concurrency: 1, HandlerTimeout: time.Second, Order: consumer.OrderNone}
		c.Policy.Busy.Wait = 100 * time.Millisecond
		c.Policy.Retry = consumer.Retry{InPlace: 1, Backoff: consumer.Backoff{Initial: 10 * time.Millisecond, Max: 10 * time.Millisecond}}
		c.Hooks = []consumer.Hook{backs}
	}))
	eventually(t, "some were delivered again", func() bool { return backs.total() > len(recs) })
	eventually(t, "all took effect", func() bool { return e.distinct() == len(recs) })
	require.NoError(t, r.stop())
	require.Equal(t, len(recs), e.len())
	require.Zero(t, backs.count(consumer.Failed))
}
