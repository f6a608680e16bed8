package rocketmq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/rocketmq"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe/memstore"
)

func haltsWithoutID(c *consumer.Config) { c.Policy.MissingID = consumer.MissingIDHalt }

func TestHalt_Stop_EndsRunAndAcknowledgesNothingOfTheMessage(t *testing.T) { haltsStop(t, false) }

func haltsStop(t *testing.T, orderly bool) {
	w := newWorld(t, 1)
	w.send(t, record{"a", "id-0", "x"}, record{"b", "", "no id"}, record{"c", "id-2", "x"})
	cfg := w.config(t)
	cfg.Orderly = orderly
	log := memstore.NewLog()
	for range 2 { // it halts whoever reads it
		r := start(t, cfg, newPipe(t, newGuard(t, "shop", log), new(effects).apply, haltsWithoutID))
		err := r.wait()
		require.ErrorIs(t, err, consumer.ErrMissingID)
		require.ErrorContains(t, err, "rocketmq: halted at "+w.topic+"/0@1 of "+w.topic+"/b0/0: ")
		require.Equal(t, rocketmq.Halted, r.State().Phase)
		require.LessOrEqual(t, w.committed(t, 1), int64(1))
	}
}

func TestHalt_PausePartition_LeavesTheQueueAloneAndGoesOnWithTheOthers(t *testing.T) {
	w := newWorld(t, 2)
	bad := message(w.topic, record{"", "", "no id"})
	w.sendRaw(t, bad)
	var e effects
	r := start(t, w.config(t), newPipe(t, newGuard(t, "shop", nil), e.apply, haltsWithoutID, func(c *consumer.Config) {
		c.Policy.OnHalt = consumer.PausePartition
	}))
	eventually(t, "one queue is left alone", func() bool { return len(r.State().Left) == 1 })
	var left rocketmq.Queue
	for q, err := range r.State().Left {
		require.ErrorIs(t, err, consumer.ErrMissingID)
		left = q
	}
	require.Equal(t, rocketmq.Running, r.State().Phase)
	w.send(t, numbered(40, 40)...)
	eventually(t, "the other queue goes on", func() bool { return e.len() >= 5 })
	for _, x := range e.all() {
		require.NotEqual(t, int32(left.ID), x.m.Partition)
	}
	require.NoError(t, r.stop())
	require.Less(t, w.committed(t, 2), int64(41))
}

func TestOutage_FetchingStops_WhatWaitsTooLongGoesBack_AndNothingIsCounted(t *testing.T) {
	w := newWorld(t, 1)
	log := &failingLog{Log: memstore.NewLog()}
	log.away.Store(true)
	var e effects
	backs := &backs{}
	c, err := rocketmq.NewConsumer(w.config(t), newPipe(t, newGuard(t, "shop", log), e.apply, func(c *consumer.Config) { c.Hooks = []consumer.Hook{backs} }))
	require.NoError(t, err)
	c.SetParkedAtMost(time.Millisecond)
	log.away.Store(false) // for the check at the start
	r := startConsumer(t, c)
	eventually(t, "it runs", func() bool { return len(r.State().Assigned) > 0 })
	log.away.Store(true)
	w.send(t, numbered(5, 5)...)
	eventually(t, "the outage is seen", func() bool { return r.State().Phase == rocketmq.Paused })
	require.ErrorIs(t, r.State().Err, errTest)
	eventually(t, "what is here went back to the broker", func() bool { return r.Inside() == 0 })
	log.away.Store(false)
	eventually(t, "all took effect", func() bool { return e.distinct() == 5 })
	require.Equal(t, rocketmq.Running, r.State().Phase)
	require.NoError(t, r.stop())
	require.Equal(t, 5, e.len())
	require.Zero(t, backs.count(consumer.Failed))
}

func TestPause_NothingBegins_UntilResume(t *testing.T) {
	w := newWorld(t, 1)
	var e effects
	c, err := rocketmq.NewConsumer(w.config(t), newPipe(t, newGuard(t, "shop", nil), e.apply))
	require.NoError(t, err)
	c.Pause()
	r := startConsumer(t, c)
	w.send(t, numbered(5, 5)...)
	eventually(t, "it is paused", func() bool { return r.State().Phase == rocketmq.Paused })
	require.NoError(t, r.State().Err)
	require.Zero(t, e.len())
	r.Resume()
	eventually(t, "all took effect", func() bool { return e.len() == 5 })
	require.Equal(t, rocketmq.Running, r.State().Phase)
	require.ErrorIs(t, r.Run(context.Background()), rocketmq.ErrRunning)
	require.NoError(t, r.stop())
}
