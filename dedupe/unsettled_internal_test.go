package dedupe

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// An outage in which very many completions are given up: what is remembered stays bounded, and the oldest goes first.
func TestUnsettled_OfGivenUpClaims_IsBoundedAndDropsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := unsettled{lease: time.Second}
		key := func(i int) Key { return Key{"inventory", "orders", strconv.Itoa(i)} }
		add := func(i int) { u.change(key(i), func(m *memory) { m.claim = &Claim{} }) }
		for i := range maxUnsettled / 2 {
			add(i)
		}
		time.Sleep(time.Minute)
		for i := range maxUnsettled {
			add(maxUnsettled/2 + i)
			require.LessOrEqual(t, len(u.keys), maxUnsettled)
		}
		require.GreaterOrEqual(t, len(u.keys), maxUnsettled-maxUnsettled/10)
		require.Nil(t, u.claimOf(key(0)))
		require.NotNil(t, u.claimOf(key(maxUnsettled/2+maxUnsettled-1)))
	})
}
