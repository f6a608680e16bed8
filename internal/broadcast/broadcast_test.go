package broadcast_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/broadcast"
)

func TestSignal_WakesAllThatWaitAndNobodyLater(t *testing.T) {
	var s broadcast.Signal
	s.Fire() // nobody waits
	first, second := s.Wait(), s.Wait()
	require.False(t, fired(first))
	s.Fire()
	require.True(t, fired(first))
	require.True(t, fired(second))
	later := s.Wait()
	require.False(t, fired(later))
	s.Fire()
	require.True(t, fired(later))
}

func fired(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
