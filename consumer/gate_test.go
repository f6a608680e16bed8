package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// DECISIONS 5: a killer runs with nothing beside it.
func TestGate_Alone_WaitsForAllAndGoesBeforeTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		ctx := t.Context()
		require.NoError(t, g.enter(ctx, false))
		require.NoError(t, g.enter(ctx, false))
		var order []string
		enter := func(name string, alone bool) {
			require.NoError(t, g.enter(ctx, alone))
			order = append(order, name)
			time.Sleep(time.Second)
			g.leave()
		}
		go enter("alone", true)
		synctest.Wait()
		go enter("beside", false)
		synctest.Wait()
		require.Empty(t, order)
		g.leave()
		synctest.Wait()
		require.Empty(t, order)
		g.leave()
		synctest.Wait()
		require.Equal(t, []string{"alone"}, order)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"alone", "beside"}, order)
		time.Sleep(time.Second)
		require.NoError(t, g.enter(ctx, true))
		g.leave()
	})
}

func TestGate_WaitingEndsWithContextOrDrainAndBlocksNobodyAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		require.NoError(t, g.enter(t.Context(), false))
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, ErrRevoked)
		defer cancel()
		require.ErrorIs(t, g.enter(ctx, true), ErrRevoked)
		begun := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(begun) })
		require.ErrorIs(t, g.enter(WithDrain(t.Context(), begun), true), ErrDraining)
		require.NoError(t, g.enter(t.Context(), false))
		g.leave()
		g.leave()
		require.NoError(t, g.enter(t.Context(), true))
		g.leave()
	})
}

func TestErrorText_IsCappedAndValid(t *testing.T) {
	long := make([]byte, 0, 4000)
	for len(long) < 3000 {
		long = append(long, "é€"...)
	}
	for cut := range 5 {
		s := errorText(&panicError{value: string(make([]byte, cut)) + string(long)})
		require.LessOrEqual(t, len(s), maxErrorBytes)
		require.Greater(t, len(s), maxErrorBytes-4)
		require.NotContains(t, s, "\uFFFD")
		require.True(t, []rune(s)[len([]rune(s))-1] != 0xFFFD)
	}
	require.Empty(t, errorText(nil))
}
