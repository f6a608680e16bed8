package rocketmq

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func pipeline(t *testing.T, scope string, p consumer.Policy) *consumer.Pipeline {
	t.Helper()
	g, err := dedupe.New(dedupe.Config{Scope: scope, Mode: dedupe.Logged, Log: memstore.NewLog()})
	require.NoError(t, err)
	pipe, err := consumer.NewPipeline(consumer.Config{
		Guard: g, ID: IDFromKeys(), Policy: p, Handler: func(context.Context, *consumer.Message) error { return nil },
	})
	require.NoError(t, err)
	return pipe
}

func TestConfig_EveryProblemIsNamedWithItsRemedy(t *testing.T) {
	cfg := Config{
		NameServers: []string{"localhost"}, Credentials: Credentials{AccessKey: "ak"}, Namespace: "a.b", Topics: []string{"a.b", "orders", "orders"},
		Filters: map[string]Filter{"orders": {}, "other": {Tags: "x"}}, Start: 9, Levels: []time.Duration{time.Second, 0}, MaxAhead: -1, MaxWaiting: 100_000,
		ConsumeTimeout: time.Second, Hooks: []Hook{3},
	}
	_, err := NewConsumer(cfg, pipeline(t, "shop.eu", consumer.Policy{AfterLetter: consumer.Block}), Route{})
	for _, want := range []string{
		`Config.NameServers: [0]: "localhost" is not host:port`,
		`Config.Credentials: AccessKey and SecretKey belong together`,
		`Config.Namespace: "a.b"`,
		`Config.Topics: "a.b" is not a topic name`,
		`Config.Topics: "orders" is named twice`,
		`Config.Filters: "orders": set Tags or SQL`,
		`Config.Filters: "other" is not consumed`,
		`Config.Group: "shop.eu": use at most 110 letters`,
		`Config.Start: start(9): choose Earliest or Latest`,
		`Config.Levels: [1]: 0s`,
		`Config.MaxAhead: -1: from 1 to 65535`,
		`Config.MaxWaiting: 100000: from 1 to 65535`,
		`Config.Orderly: after_letter: block needs the order of keys`,
		`Config.ConsumeTimeout: 1s: at least 3m5s`,
		`Config.Hooks: [0]: int implements no Hook interface`,
		`Config.Route[0].Topics: empty`,
		`Config.Route[0].Topics: their pipeline is nil`,
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestConfig_TiersThatTheBrokerCannotKeepAreRefused(t *testing.T) {
	tiers := consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Tiers: []time.Duration{time.Minute, 3 * time.Hour}}}
	cfg := Config{NameServers: []string{"127.0.0.1:9876"}, Topics: []string{"orders"}}
	_, err := NewConsumer(cfg, pipeline(t, "shop", tiers))
	require.NoError(t, err) // the broker is asked for its levels
	cfg.Levels = []time.Duration{time.Second, 2 * time.Hour}
	_, err = NewConsumer(cfg, pipeline(t, "shop", tiers))
	require.ErrorContains(t, err, "3h0m0s is longer than the broker's longest delay level, 2h0m0s")
	cfg.Orderly, cfg.Levels = true, nil
	_, err = NewConsumer(cfg, pipeline(t, "shop", tiers))
	require.ErrorContains(t, err, "break the order of a queue")
}

func TestConfig_Defaults(t *testing.T) {
	cfg := Config{NameServers: []string{"http://127.0.0.1:9876"}, Topics: []string{"orders"}}
	c, err := NewConsumer(cfg, pipeline(t, "shop", consumer.Policy{HandlerTimeout: time.Hour}))
	require.NoError(t, err)
	require.Equal(t, "shop", c.cfg.Group)
	require.Equal(t, []string{"127.0.0.1:9876"}, c.cfg.NameServers)
	require.Equal(t, Earliest, c.cfg.Start)
	require.Equal(t, 2*(3*(time.Hour+30*time.Second)+5*time.Second), c.cfg.ConsumeTimeout) // trap 34: the client sends back what runs longer
	require.Equal(t, "%DLQ%shop", letterTopic("shop", consumer.Policy{}))
	require.Empty(t, letterTopic("shop", consumer.Policy{DeadLetter: consumer.DeadLetterTo{Off: true}}))
	require.Equal(t, Idle, c.State().Phase)
	require.Empty(t, c.Lag())
}

func TestConfig_LettersAreNotConsumedAgain(t *testing.T) {
	cfg := Config{NameServers: []string{"127.0.0.1:9876"}, Topics: []string{"%DLQ%shop"}}
	_, err := NewConsumer(cfg, pipeline(t, "shop", consumer.Policy{}))
	require.ErrorContains(t, err, "gets the dead letters")
}

func TestResource_HasTheNamespaceBehindTheBrokersPrefix(t *testing.T) {
	cfg := Config{Namespace: "ns"}
	for name, want := range map[string]string{"orders": "ns%orders", "%RETRY%g": "%RETRY%ns%g", "%DLQ%g": "%DLQ%ns%g"} {
		require.Equal(t, want, cfg.resource(name))
		require.Equal(t, name, cfg.shownOwn(want))
	}
	require.Equal(t, "orders", (&Config{}).resource("orders"))
}

func TestStart_IsReadAsItIsWritten(t *testing.T) {
	for s := Default; s <= Latest; s++ {
		back, err := ParseStart(s.String())
		require.NoError(t, err)
		require.Equal(t, s, back)
	}
	_, err := ParseStart("middle")
	require.ErrorContains(t, err, `rocketmq: start "middle"`)
	require.Equal(t, "start(9)", Start(9).String())
	require.Equal(t, "phase(99)", Phase(99).String())
	require.Equal(t, "halted", Halted.String())
}
