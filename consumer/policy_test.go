package consumer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
)

func TestPolicy_ZeroIsValidAndPrintsItsDefaults(t *testing.T) {
	var p consumer.Policy
	require.Empty(t, p.Validate())
	require.Equal(t, "handler_timeout 30s, concurrency 16, drain_timeout 20s, order key, after_letter go_on, on_halt stop, "+
		"on_conflict dead_letter, on_missing_id dead_letter, store_outage wait, "+
		"attempts 10 (3 in place, after 200ms times 2 up to 30s, jitter 0.2), tiers [], permanent [], busy wait 5s, "+
		"dead letters topic <group>.dlq", p.String())
	require.Equal(t, p.Effective(), p.Effective().Effective())
	p.Retry.Attempts = 2
	require.Equal(t, 2, p.Effective().Retry.InPlace, "in place is never more than all attempts by default")
}

func TestPolicy_Validate_NamesFieldValueAndRemedy(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy consumer.Policy
		fields []string
	}{
		{"negative timeout", consumer.Policy{HandlerTimeout: -1}, []string{"handler_timeout"}},
		{"a slip of units", consumer.Policy{HandlerTimeout: 30 * 24 * time.Hour}, []string{"handler_timeout"}},
		{"concurrency", consumer.Policy{Concurrency: -1}, []string{"concurrency"}},
		{"drain", consumer.Policy{DrainTimeout: 1}, []string{"drain_timeout"}},
		{"choices", consumer.Policy{Order: 9, OnHalt: 9, Conflict: 9, MissingID: 9, StoreOutage: 9, AfterLetter: 9}, []string{"order", "after_letter", "on_halt", "on_conflict", "on_missing_id", "store_outage"}},
		{"attempts", consumer.Policy{Retry: consumer.Retry{Attempts: -2}}, []string{"retry.attempts"}},
		{"in place", consumer.Policy{Retry: consumer.Retry{InPlace: -1}}, []string{"retry.in_place"}},
		{"crossed: in place over attempts", consumer.Policy{Retry: consumer.Retry{Attempts: 2, InPlace: 3}}, []string{"retry.in_place"}},
		{"crossed: max below initial", consumer.Policy{Retry: consumer.Retry{Backoff: consumer.Backoff{Initial: time.Second, Max: time.Millisecond}}}, []string{"retry.backoff.max"}},
		{"factor", consumer.Policy{Retry: consumer.Retry{Backoff: consumer.Backoff{Factor: 0.5}}}, []string{"retry.backoff.factor"}},
		{"jitter", consumer.Policy{Retry: consumer.Retry{Backoff: consumer.Backoff{Jitter: 1.5}}}, []string{"retry.backoff.jitter"}},
		{"tiers break the order of keys", consumer.Policy{Retry: consumer.Retry{Tiers: []time.Duration{time.Second}}}, []string{"retry.tiers"}},
		{"tiers that are never used", consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Attempts: 3, Tiers: []time.Duration{time.Second}}}, []string{"retry.tiers"}},
		{"tiers not rising", consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Tiers: []time.Duration{time.Second, time.Second, 0}}}, []string{"retry.tiers[1]", "retry.tiers[2]", "retry.tiers[2]"}},
		{"permanent", consumer.Policy{Retry: consumer.Retry{Permanent: []string{"a", "", "a"}}}, []string{"retry.permanent[1]", "retry.permanent[2]"}},
		{"busy", consumer.Policy{Busy: consumer.Busy{Wait: -1}}, []string{"busy.wait"}},
		{"topic and off", consumer.Policy{DeadLetter: consumer.DeadLetterTo{Topic: "x", Off: true}}, []string{"dead_letter"}},
		{"block without an order", consumer.Policy{Order: consumer.OrderNone, AfterLetter: consumer.Block}, []string{"after_letter"}},
		{"all at once", consumer.Policy{HandlerTimeout: -1, Concurrency: -1, Busy: consumer.Busy{Wait: -1}}, []string{"handler_timeout", "concurrency", "busy.wait"}},
		{"fine", consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Attempts: consumer.Unlimited, Tiers: []time.Duration{time.Second, time.Minute}}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var fields []string
			for _, p := range c.policy.Validate() {
				fields = append(fields, p.Field)
				require.NotEmpty(t, p.Wrong)
				require.NotEmpty(t, p.Remedy)
				require.ErrorContains(t, p, p.Field+": ")
			}
			require.Equal(t, c.fields, fields)
		})
	}
}

func TestBackoff_GrowsToMaxAndSpreads(t *testing.T) {
	b := consumer.Backoff{Initial: 100 * time.Millisecond, Factor: 3, Max: time.Second, Jitter: 0.1}
	for i, want := range []time.Duration{100, 300, 900, 1000, 1000} {
		lo, hi := time.Hour, time.Duration(0)
		for range 200 {
			d := b.Delay(i + 1)
			lo, hi = min(lo, d), max(hi, d)
		}
		want *= time.Millisecond
		require.GreaterOrEqual(t, lo, want*9/10)
		require.LessOrEqual(t, hi, want*11/10)
		require.Less(t, lo, hi, "delays are spread")
	}
	require.LessOrEqual(t, b.Delay(1_000_000), 1100*time.Millisecond)
	require.Positive(t, consumer.Backoff{}.Delay(0))
}
