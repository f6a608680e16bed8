package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

func aLedger() ledger {
	return ledger{
		records: 6,
		orders:  map[string]Order{"a": {"S", 1}, "b": {"S", 2}, "c": {"S", 3}, "d": {"S", 4}},
		letters: map[string]bool{"d": true},
	}
}

func TestTally_EverythingOnce_AddsUp(t *testing.T) {
	r := tally(aLedger(), books{
		stock:     []shelf{{"S", 94, 100}, {"T", 7, 7}},
		movements: []movement{{"a", "S", -1}, {"b", "S", -2}, {"c", "S", -3}},
	})
	require.Equal(t, report{
		Orders: 4, Deliveries: 6, Applied: 3, Duplicates: 2, Dead: 1, NaiveTwice: 2, StockExpected: 101, StockActual: 101,
	}, r)
	require.NoError(t, r.verdict(dedupe.Transactional))
}

func TestTally_MovementTwice_IsTwice(t *testing.T) {
	r := tally(aLedger(), books{
		stock:     []shelf{{"S", 92, 100}},
		movements: []movement{{"a", "S", -1}, {"b", "S", -2}, {"b", "S", -2}, {"c", "S", -3}},
	})
	require.Equal(t, 1, r.Twice)
	require.Equal(t, 3, r.Applied)
	require.Equal(t, int64(94), r.StockExpected)
	require.ErrorAs(t, r.verdict(dedupe.Transactional), &wrong{})
	require.NoError(t, r.verdict(dedupe.Logged), "logged promises less: reported, no error")
}

func TestTally_OrderWithoutEffect_IsLostOnlyWhenNothingIsPending(t *testing.T) {
	l, b := aLedger(), books{stock: []shelf{{"S", 97, 100}}, movements: []movement{{"a", "S", -1}, {"b", "S", -2}}}
	r := tally(l, b)
	require.Equal(t, 1, r.Lost)
	require.ErrorAs(t, r.verdict(dedupe.Logged), &wrong{})

	l.pending = 1
	r = tally(l, b)
	require.Zero(t, r.Lost)
	err := r.verdict(dedupe.Transactional)
	require.ErrorContains(t, err, "1 messages are not settled yet")
	require.False(t, errors.As(err, &wrong{}), "not known yet is not wrong")
}

func TestTally_LetterOfAnAppliedOrder_IsNotDead(t *testing.T) {
	l := aLedger()
	l.letters["a"] = true     // redriven and applied
	l.letters["other"] = true // of an order that is not in the topic
	r := tally(l, books{stock: []shelf{{"S", 94, 100}}, movements: []movement{{"a", "S", -1}, {"b", "S", -2}, {"c", "S", -3}}})
	require.Equal(t, 1, r.Dead)
	require.Zero(t, r.Lost)
}

func TestTally_MovementOfAnUnknownOrder_GivesNoVerdict(t *testing.T) {
	r := tally(aLedger(), books{
		stock:     []shelf{{"S", 90, 100}},
		movements: []movement{{"a", "S", -1}, {"b", "S", -2}, {"c", "S", -3}, {"x", "S", -4}},
	})
	require.Equal(t, 1, r.Unknown)
	err := r.verdict(dedupe.Transactional)
	require.ErrorContains(t, err, "belong to no order")
	require.False(t, errors.As(err, &wrong{}))
}

func TestTally_StockThatDoesNotAddUp_IsWrong(t *testing.T) {
	r := tally(aLedger(), books{stock: []shelf{{"S", 93, 100}}, movements: []movement{{"a", "S", -1}, {"b", "S", -2}, {"c", "S", -3}}})
	err := r.verdict(dedupe.Transactional)
	require.ErrorAs(t, err, &wrong{})
	require.ErrorContains(t, err, "stock is 93 and should be 94")
}

func TestReport_JSON_IsExactlyOneObjectWithTheAgreedNames(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, report{Orders: 4, Guarantee: "effects once", Seconds: 1.5}.writeJSON(&buf))
	oneObject(t, buf.Bytes())
}

// oneObject requires that text is one JSON object with the agreed fields, and returns it.
func oneObject(t *testing.T, text []byte) map[string]any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	var got map[string]any
	require.NoError(t, dec.Decode(&got), "%s", text)
	require.ErrorIs(t, dec.Decode(new(any)), io.EOF, "something follows the object: %s", text)
	for _, name := range []string{
		"orders", "deliveries", "applied", "duplicates", "dead", "lost", "twice", "naive_twice", "pending", "stock_expected", "stock_actual", "seconds",
	} {
		require.IsType(t, float64(0), got[name], name)
	}
	require.IsType(t, "", got["guarantee"])
	return got
}

func TestReport_Text_NamesWhatPeopleLookFor(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, report{Orders: 12345, Guarantee: "effects once"}.writeText(&buf))
	require.Contains(t, buf.String(), "12,345")
	require.Contains(t, buf.String(), "effects once")
}

func TestInDays_WritesWholeDays(t *testing.T) {
	for text, want := range map[string]string{
		"lease 12s, remembered for 360h0m0s": "lease 12s, remembered for 15 days", "24h0m0s": "24h0m0s", "49h0m0s": "49h0m0s", "360h0m1s": "360h0m1s",
	} {
		require.Equal(t, want, inDays(text))
	}
}

func TestGrouped_WritesThousands(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -100: "-100", -1000: "-1,000"} {
		require.Equal(t, want, grouped(n))
	}
}
