package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
)

func TestNewConsumer_EverythingWrong_IsListedAtOnce(t *testing.T) {
	p := newPipe(t, newGuard(t, "shop", nil), new(effects).apply, func(c *consumer.Config) { c.Policy.DrainTimeout = time.Minute })
	_, err := kafka.NewConsumer(kafka.Config{
		Brokers:         []string{"nowhere"},
		Topics:          []string{"a b", "orders", "orders"},
		Group:           strings.Repeat("g", 243),
		Start:           kafka.HaltThere,
		OutOfRange:      9,
		Session:         time.Millisecond,
		Rebalance:       time.Minute,
		WatchPartitions: -1,
		MaxAhead:        -1,
		MaxWaiting:      -1,
		Hooks:           []kafka.Hook{"no hook"},
	}, p, kafka.Route{})
	require.Error(t, err)
	for _, want := range []string{
		`Config.Brokers: [0]: "nowhere" is not host:port`,
		`Config.Topics: "a b" is not a topic name`,
		`Config.Topics: "orders" is named twice`,
		`Config.Route[0].Topics: empty`,
		`Config.Route[0].Topics: their pipeline is nil`,
		`Config.Group: "ggg`,
		`Config.Start: halt: choose Earliest or Latest`,
		`Config.OutOfRange: start(9)`,
		`Config.Session: 1ms: at least 100ms`,
		`Config.Rebalance: 1m0s: at least 1m5s, which is the drain timeout 1m0s and 5s`,
		`Config.WatchPartitions: -1ns`,
		`Config.MaxAhead: -1`,
		`Config.MaxWaiting: -1`,
		`Config.Hooks: [0]: string implements no Hook`,
	} {
		require.ErrorContains(t, err, want)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 14)
}

func TestNewConsumer_Defaults_NeedBrokersAndTopicsOnly(t *testing.T) {
	p := newPipe(t, newGuard(t, "shop", nil), new(effects).apply)
	c, err := kafka.NewConsumer(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"orders"}}, p)
	require.NoError(t, err)
	require.Equal(t, consumer.PhaseIdle, c.State().Phase)
	require.Empty(t, c.Lag())
}

func TestNewConsumer_OwnCopiesAsTopics_AreRefused(t *testing.T) {
	p := newPipe(t, newGuard(t, "shop", nil), new(effects).apply)
	_, err := kafka.NewConsumer(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"orders", "shop.dlq", "shop.retry.5m"}}, p)
	require.ErrorContains(t, err, `"shop.dlq" gets the dead letters`)
	require.ErrorContains(t, err, `"shop.retry.5m" is a retry topic of the group`)
}

func TestNewConsumer_LongDrain_GetsALongerRebalance(t *testing.T) {
	p := newPipe(t, newGuard(t, "shop", nil), new(effects).apply, func(c *consumer.Config) { c.Policy.DrainTimeout = time.Hour })
	_, err := kafka.NewConsumer(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"orders"}}, p)
	require.NoError(t, err)
}

func TestParseStart_ReadsWhatStringWrites(t *testing.T) {
	for s := kafka.Default; s <= kafka.HaltThere; s++ {
		got, err := kafka.ParseStart(s.String())
		require.NoError(t, err)
		require.Equal(t, s, got)
	}
	_, err := kafka.ParseStart("begin")
	require.ErrorContains(t, err, `"begin"`)
}

func TestNewConsumer_DeadLettersNamedLikeARetryTopic_AreRefused(t *testing.T) {
	p := newPipe(t, newGuard(t, "shop", nil), new(effects).apply, func(c *consumer.Config) { c.Policy.DeadLetter.Topic = "shop.retry.dead" })
	_, err := kafka.NewConsumer(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"orders"}}, p)
	require.ErrorContains(t, err, `dead letters go to "shop.retry.dead", but names that begin with "shop.retry." are for retry topics; choose another Policy.DeadLetter.Topic`)
}
