package kafka_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe/memstore"
)

func haltsWithoutID(c *consumer.Config) { c.Policy.MissingID = consumer.MissingIDHalt }

func TestHalt_Stop_EndsRunAndAcknowledgesNothingOfTheMessage(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	produce(t, c.ListenAddrs(), "orders", record{"a", "id-0", "x"}, record{"a", "", "no id"}, record{"b", "id-2", "x"})
	log := memstore.NewLog()
	for range 2 { // it halts whoever reads it
		r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", log), new(effects).apply, haltsWithoutID))
		err := r.wait()
		require.ErrorIs(t, err, consumer.ErrMissingID)
		require.ErrorContains(t, err, "kafka: halted at orders/0@1")
		require.Equal(t, consumer.PhaseHalted, r.State().Phase)
		require.Equal(t, []int64{1}, committed(t, c.ListenAddrs(), "shop", "orders", 1))
	}
}

func TestHalt_PausePartition_LeavesItAloneAndGoesOnWithTheOthers(t *testing.T) {
	c := fake(t)
	recs := numbered(60, 12)
	produce(t, c.ListenAddrs(), "orders", recs...)
	produce(t, c.ListenAddrs(), "orders", record{"k0", "", "no id"})
	var e effects
	r := start(t, config(t, c.ListenAddrs(), "orders"), newPipe(t, newGuard(t, "shop", nil), e.apply, haltsWithoutID, func(c *consumer.Config) {
		c.Policy.OnHalt = consumer.PausePartition
	}))
	eventually(t, "one partition is left alone", func() bool { return len(r.State().Left) == 1 })
	for _, err := range r.State().Left {
		require.ErrorIs(t, err, consumer.ErrMissingID)
	}
	require.Equal(t, consumer.PhaseRunning, r.State().Phase)
	more := make([]record, 40)
	for i, x := range numbered(40, 40) {
		more[i] = record{"more" + x.key, "more" + x.id, x.value}
	}
	produce(t, c.ListenAddrs(), "orders", more...)
	eventually(t, "the other partitions go on", func() bool { return e.len() >= 60+15 })
	eventually(t, "and are settled", func() bool {
		lag := r.Lag()
		zero := 0
		for _, n := range lag {
			if n == 0 {
				zero++
			}
		}
		return len(lag) == 3 && zero == 2
	})
	require.NoError(t, r.stop())
}

func TestTrap05_PanickingHandler_IsAFailureAndEndsNoGeneration(t *testing.T) {
	c := fake(t)
	produce(t, c.ListenAddrs(), "orders", record{"a", "poison", "x"}, record{"b", "good", "x"})
	var e effects
	gens := &generations{}
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.Hooks = []kafka.Hook{gens, panicky{}}
	h := func(ctx context.Context, m *consumer.Message) error {
		if m.ID() == "poison" {
			panic("poison")
		}
		return e.apply(ctx, m)
	}
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), h, func(c *consumer.Config) { c.Policy.Retry.Attempts = 3 }))
	letters := listed(t, c.ListenAddrs(), "shop.dlq", 1)
	require.NoError(t, r.stop())
	require.Equal(t, consumer.ReasonExhausted, letters[0].Reason)
	require.Contains(t, letters[0].Error, "panicked")
	require.Equal(t, 3, letters[0].Attempts)
	require.Equal(t, []string{"good"}, e.ids())
	require.Len(t, gens.all(), 1)
	require.EqualValues(t, 2, sum(committed(t, c.ListenAddrs(), "shop", "orders", 3)))
}

// panicky is a hook that must not take anything with it.
type panicky struct{}

func (panicky) OnCommit(context.Context, int32, map[kafka.TopicPartition]int64, error) {
	panic(errors.New("hook"))
}
func (panicky) OnLag(context.Context, kafka.TopicPartition, int64) { panic("hook") }
