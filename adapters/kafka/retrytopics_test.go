package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSideTopic_Existing_IsCheckedWithTheCommand(t *testing.T) {
	s := &sideTopic{name: "g.retry.1h", tier: time.Hour, partitions: 3, source: topicConfig{known: true, retention: 24 * time.Hour, maxMessage: 2 << 20}}
	require.NoError(t, s.check(topicConfig{}), "not known")
	require.NoError(t, s.check(topicConfig{known: true, unlimited: true, maxMessage: 3 << 20}))
	require.ErrorContains(t, s.check(topicConfig{known: true, compacted: true, unlimited: true, maxMessage: 3 << 20}), "--add-config cleanup.policy=delete")
	require.ErrorContains(t, s.check(topicConfig{known: true, retention: time.Hour, maxMessage: 3 << 20}), "--add-config retention.ms=90000000")
	require.ErrorContains(t, s.check(topicConfig{known: true, unlimited: true, maxMessage: 1 << 20}), "--add-config max.message.bytes=2162688")
	require.Equal(t, "kafka-topics.sh --bootstrap-server b:1 --create --topic g.retry.1h --partitions 3 --config cleanup.policy=delete --config max.message.bytes=2162688 --config retention.ms=90000000", s.command("b:1"))
}
