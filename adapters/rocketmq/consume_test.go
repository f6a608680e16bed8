package rocketmq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/rocketmq"
)

func TestRun_DuplicatesHaveOneEffect_AndEverythingIsCommittedAtTheEnd(t *testing.T) {
	w := newWorld(t, 4)
	recs := numbered(100, 10)
	w.send(t, recs...)
	w.send(t, recs[:30]...)
	var e effects
	r := start(t, w.config(t), newPipe(t, newGuard(t, "shop", nil), e.apply))
	eventually(t, "all took effect", func() bool { return e.distinct() == len(recs) })
	require.Equal(t, rocketmq.Running, r.State().Phase)
	eventually(t, "lag is 0", func() bool {
		lag := r.Lag()
		sum := int64(0)
		for _, n := range lag {
			sum += n
		}
		return len(lag) >= 4 && sum == 0
	})
	require.Len(t, r.State().Assigned, 5) // with the group's retry queue
	require.NoError(t, r.stop())
	require.Equal(t, len(recs), e.len())
	require.Equal(t, rocketmq.Stopped, r.State().Phase)
	w.requireCommitted(t, 4, 130)
}
