package kafka_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
)

func TestBlockedKey_StateSaysWhichMessageItWasAndThatThePartitionStandsStill(t *testing.T) {
	c := fake(t, kfake.SeedTopics(1, "orders"))
	cfg := config(t, c.ListenAddrs(), "orders")
	cfg.MaxAhead = 20
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), func(ctx context.Context, m *consumer.Message) error {
		if m.ID() == "bad" {
			return consumer.Permanent(errStock)
		}
		return e.apply(ctx, m)
	}, func(c *consumer.Config) { c.Policy.AfterLetter = consumer.Block }))
	blocked := func() string {
		if err := r.State().Blocked[kafka.TopicPartition{Topic: "orders"}]; err != nil {
			return err.Error()
		}
		return ""
	}
	produce(t, c.ListenAddrs(), "orders", record{"blocked", "bad", "v"}, record{"blocked", "next", "v"})
	eventually(t, "the key is blocked", func() bool { return blocked() == "kafka: the key of orders/0@0 is blocked by its dead letter" })
	for _, x := range numbered(30, 10) {
		produce(t, c.ListenAddrs(), "orders", x)
	}
	eventually(t, "the partition stands still", func() bool {
		return blocked() == "kafka: the key of orders/0@0 is blocked by its dead letter; the partition stands still: too much lies beyond the key's next message"
	})
	require.Less(t, e.len(), 30)
	require.NotContains(t, e.ids(), "next")
	require.Equal(t, []int64{1}, committed(t, c.ListenAddrs(), "shop", "orders", 1))
	require.NoError(t, r.stop())
	require.Empty(t, r.State().Blocked)
}
