package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTraffic_SameSeed_IsTheSameMessagesInTheSameOrder(t *testing.T) {
	a := traffic{Orders: 500, Duplicates: 0.3, SKUs: 20, Seed: 7}
	require.Equal(t, a.messages(), a.messages())
	b := a
	b.Seed = 8
	require.NotEqual(t, a.messages(), b.messages())
}

func TestTraffic_OtherSeed_HasOtherIDs(t *testing.T) {
	ids := func(seed uint64) map[string]bool {
		set := map[string]bool{}
		for _, m := range (traffic{Orders: 100, SKUs: 3, Seed: seed}).messages() {
			set[orderID(m)] = true
		}
		return set
	}
	first, second := ids(1), ids(2)
	require.Len(t, first, 100)
	for id := range second {
		require.NotContains(t, first, id)
	}
}

func TestTraffic_SecondCopies_HaveTheSameIDAndBodyAndAnotherKey(t *testing.T) {
	tr := traffic{Orders: 2000, Duplicates: 0.3, SKUs: 20, Seed: 1}
	first := map[string]int{}
	msgs := tr.messages()
	copies := 0
	for i, m := range msgs {
		id := orderID(m)
		require.Equal(t, idHeader, m.Headers[0].Key)
		j, again := first[id]
		if !again {
			first[id] = i
			continue
		}
		copies++
		require.Equal(t, msgs[j].Value, m.Value)
		require.NotEqual(t, msgs[j].Key, m.Key)
	}
	require.Len(t, first, 2000)
	require.InDelta(t, 600, copies, 80)
	require.Len(t, msgs, 2000+copies)
}

func TestTraffic_SharesZeroAndOne_AreExact(t *testing.T) {
	require.Len(t, traffic{Orders: 300, SKUs: 1, Seed: 1}.messages(), 300)
	require.Len(t, traffic{Orders: 300, Duplicates: 1, SKUs: 1, Seed: 1}.messages(), 600)
}

func TestTraffic_Orders_AreWithinBounds(t *testing.T) {
	for _, m := range (traffic{Orders: 1000, SKUs: 3, Seed: 9}).messages() {
		var o Order
		require.NoError(t, json.Unmarshal(m.Value, &o))
		require.Contains(t, []string{sku(1), sku(2), sku(3)}, o.SKU)
		require.GreaterOrEqual(t, o.Quantity, int64(1))
		require.LessOrEqual(t, o.Quantity, int64(5))
	}
}
