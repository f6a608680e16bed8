package retrytopic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/retrytopic"
)

func TestNameAndDelay_GoThereAndBack(t *testing.T) {
	for delay, want := range map[time.Duration]string{
		5 * time.Minute:         "g.retry.5m",
		time.Hour:               "g.retry.1h",
		90 * time.Second:        "g.retry.1m30s",
		10 * time.Second:        "g.retry.10s",
		time.Hour + time.Second: "g.retry.1h0m1s",
		100 * time.Millisecond:  "g.retry.100ms",
		7 * time.Microsecond:    "g.retry.7us",
	} {
		name := retrytopic.Name("g", delay)
		require.Equal(t, want, name)
		require.Regexp(t, `^[a-zA-Z0-9._-]+$`, name, "what Kafka allows")
		got, ok := retrytopic.Delay("g", name)
		require.True(t, ok)
		require.Equal(t, delay, got)
	}
	_, ok := retrytopic.Delay("g", "orders")
	require.False(t, ok)
	for _, other := range []string{"g.retry.dlq", "g.retry.retry.5m", "g.retry.", "g.retry.-5m", "g.retry.5m.dlq"} {
		_, ok := retrytopic.Delay("g", other)
		require.False(t, ok, "%s may belong to another group", other)
	}
}

func FuzzDelay(f *testing.F) {
	f.Add("g", "g.retry.5m")
	f.Add("g", "g.retry.-5m")
	f.Add("", ".retry.1h0m")
	f.Fuzz(func(t *testing.T, group, topic string) {
		delay, ok := retrytopic.Delay(group, topic)
		if !ok && delay != 0 || delay < 0 {
			t.Fatalf("Delay(%q, %q) = %v, %v", group, topic, delay, ok)
		}
		if again, ok := retrytopic.Delay(group, retrytopic.Name(group, delay)); !ok || again != delay {
			t.Fatalf("%v becomes %v", delay, again)
		}
	})
}
