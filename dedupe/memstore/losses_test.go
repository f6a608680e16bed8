package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func claimRequest(t *testing.T, id string) dedupe.ClaimRequest {
	t.Helper()
	k, err := dedupe.NewKey("inventory", "orders", id)
	require.NoError(t, err)
	return dedupe.ClaimRequest{Key: k, Owner: dedupe.Owner("owner of " + id), Fingerprint: dedupe.NoFingerprint, Lease: time.Minute, Retention: time.Hour}
}

func claim(t *testing.T, s dedupe.Store, r dedupe.ClaimRequest) dedupe.Reply {
	t.Helper()
	replies := s.Claim(t.Context(), []dedupe.ClaimRequest{r})
	require.Len(t, replies, 1)
	return replies[0]
}

func TestRestoreFrom_AnOlderMemory_IsNoticedByClaimAndByRemember(t *testing.T) {
	s := memstore.New()
	lost, err := s.Remember(t.Context(), "inventory")
	require.NoError(t, err)
	require.False(t, lost)
	backup := s.Snapshot()
	require.Equal(t, dedupe.Claimed, claim(t, s, claimRequest(t, "1")).Verdict)

	s.RestoreFrom(backup)

	require.ErrorIs(t, claim(t, s, claimRequest(t, "2")).Err, dedupe.ErrMemoryLost)
	lost, err = s.Remember(t.Context(), "inventory")
	require.NoError(t, err)
	require.True(t, lost, "the marks are there, and another memory wrote them")
	require.Equal(t, dedupe.Claimed, claim(t, s, claimRequest(t, "2")).Verdict)
}

func TestSnapshot_LaterWrites_AreNotInIt(t *testing.T) {
	s := memstore.New()
	require.Equal(t, dedupe.Claimed, claim(t, s, claimRequest(t, "1")).Verdict)
	backup := s.Snapshot()
	require.Equal(t, dedupe.Claimed, claim(t, s, claimRequest(t, "2")).Verdict)
	for range 2 { // a backup serves more than once
		s.RestoreFrom(backup)
		again := claimRequest(t, "2")
		again.Owner = "another"
		require.Equal(t, dedupe.Claimed, claim(t, s, again).Verdict)
		again = claimRequest(t, "1")
		again.Owner = "another"
		require.Equal(t, dedupe.Busy, claim(t, s, again).Verdict)
	}
}

func TestLogRestoreFrom_RowsValuesScopesAndIncarnationGoBack_AndRestoredChangesTheIncarnation(t *testing.T) {
	ctx := t.Context()
	l := memstore.NewLog()
	before, err := l.Incarnation(ctx)
	require.NoError(t, err)
	backup := l.Snapshot()
	require.Equal(t, dedupe.Claimed, claim(t, l, claimRequest(t, "1")).Verdict)
	tx := l.Begin()
	tx.Set("stock", 3)
	require.NoError(t, tx.Commit())
	_, err = l.Enter(ctx, dedupe.ScopeRow{Scope: "inventory", Mode: dedupe.Logged, Retention: time.Hour})
	require.NoError(t, err)

	l.RestoreFrom(backup)

	recs, err := l.Inspect(ctx, []dedupe.Key{claimRequest(t, "1").Key})
	require.NoError(t, err)
	require.Equal(t, dedupe.StateAbsent, recs[0].State)
	require.Nil(t, l.Value("stock"))
	_, err = l.Enter(ctx, dedupe.ScopeRow{Scope: "inventory", Mode: dedupe.Transactional, Retention: time.Hour})
	require.NoError(t, err, "the scope's row is gone, so any mode may enter")
	restored, err := l.Incarnation(ctx)
	require.NoError(t, err)
	require.Equal(t, before, restored, "a dump changes no identity: that is what Restored is for")
	restored, err = l.Restored(ctx, dedupe.Audit{By: "mira", Reason: "disk"})
	require.NoError(t, err)
	require.NotEqual(t, before, restored)
}

func TestClaim_InABubble_ExpiresByItsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memstore.NewLog()
		r := claimRequest(t, "1")
		require.Equal(t, dedupe.Claimed, claim(t, l, r).Verdict)
		r.Owner = "another"
		time.Sleep(r.Lease - 1)
		require.Equal(t, dedupe.Busy, claim(t, l, r).Verdict)
		time.Sleep(time.Nanosecond)
		reply := claim(t, l, r)
		require.Equal(t, dedupe.Claimed, reply.Verdict)
		require.True(t, reply.Taken)
	})
}

// Redis may have counted a redrive of which the log has no row: the log's done is done all the same.
func TestLearn_DoneOfALowerGeneration_IsWritten(t *testing.T) {
	s := memstore.New()
	r := claimRequest(t, "1")
	require.NoError(t, s.Learn(t.Context(), []dedupe.Record{{Key: r.Key, State: dedupe.StateFree, Generation: 2}}, time.Hour)[0])
	require.NoError(t, s.Learn(t.Context(), []dedupe.Record{{Key: r.Key, State: dedupe.StateDone, Generation: 1}}, time.Hour)[0])
	require.NoError(t, s.Learn(t.Context(), []dedupe.Record{{Key: r.Key, State: dedupe.StateFree, Generation: 3}}, time.Hour)[0])
	require.Equal(t, dedupe.Done, claim(t, s, r).Verdict)
}
