package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRetryTopic_NameAndDelay_GoThereAndBack(t *testing.T) {
	for tier, want := range map[time.Duration]string{
		5 * time.Minute:         "g.retry.5m",
		time.Hour:               "g.retry.1h",
		90 * time.Second:        "g.retry.1m30s",
		10 * time.Second:        "g.retry.10s",
		time.Hour + time.Second: "g.retry.1h0m1s",
		100 * time.Millisecond:  "g.retry.100ms",
		7 * time.Microsecond:    "g.retry.7us",
	} {
		name := retryTopic("g", tier)
		require.Equal(t, want, name)
		require.Regexp(t, topicName, name)
		got, ok := tierOf("g", name)
		require.True(t, ok)
		require.Equal(t, tier, got)
	}
	_, ok := tierOf("g", "orders")
	require.False(t, ok)
	d, ok := tierOf("g", "g.retry.soon")
	require.True(t, ok, "it has the prefix, so it is ours to consume")
	require.Zero(t, d)
}

func TestSideTopic_Existing_IsCheckedWithTheCommand(t *testing.T) {
	s := &sideTopic{name: "g.retry.1h", tier: time.Hour, partitions: 3, source: topicConfig{known: true, retention: 24 * time.Hour, maxMessage: 2 << 20}}
	require.NoError(t, s.check(topicConfig{}), "not known")
	require.NoError(t, s.check(topicConfig{known: true, unlimited: true, maxMessage: 3 << 20}))
	require.ErrorContains(t, s.check(topicConfig{known: true, compacted: true, unlimited: true, maxMessage: 3 << 20}), "--add-config cleanup.policy=delete")
	require.ErrorContains(t, s.check(topicConfig{known: true, retention: time.Hour, maxMessage: 3 << 20}), "--add-config retention.ms=90000000")
	require.ErrorContains(t, s.check(topicConfig{known: true, unlimited: true, maxMessage: 1 << 20}), "--add-config max.message.bytes=2162688")
	require.Equal(t, "kafka-topics.sh --bootstrap-server b:1 --create --topic g.retry.1h --partitions 3 --config cleanup.policy=delete --config max.message.bytes=2162688 --config retention.ms=90000000", s.command("b:1"))
}
