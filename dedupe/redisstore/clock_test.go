package redisstore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
)

// The server's clock may go back: set by hand, or by a failover to a machine whose clock is another. It decides about leases.

const shortLease = 12 * time.Second

// clock is the server's, which a test sets.
type clock struct {
	m   *miniredis.Miniredis
	now time.Time
}

func (c *clock) move(d time.Duration) {
	c.now = c.now.Add(d)
	c.m.SetTime(c.now)
}

func newClock(t *testing.T) (*clock, *redisstore.Store) {
	c := &clock{m: miniredis.RunT(t), now: time.UnixMilli(1_800_000_000_000)}
	c.move(0)
	s, _ := newStore(t, "redis://"+c.m.Addr())
	return c, s
}

func claimShortly(t *testing.T, s dedupe.Store, k dedupe.Key, o dedupe.Owner) dedupe.Reply {
	t.Helper()
	r := claimOf(k, o)
	r.Lease = shortLease
	rep := s.Claim(t.Context(), []dedupe.ClaimRequest{r})[0]
	require.NoError(t, rep.Err)
	return rep
}

func TestClaim_ClockWentBack_DeadOwnersLeaseIsWaitedForOnce(t *testing.T) {
	for name, back := range map[string]time.Duration{"less than the lease": 5 * time.Second, "an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			c, s := newClock(t)
			k := key(t, scope(), "1")
			claimShortly(t, s, k, "dead")
			c.move(4*time.Second - back)
			rep := claimShortly(t, s, k, "next")
			require.Equal(t, dedupe.Busy, rep.Verdict, "the owner may be working")
			require.Equal(t, shortLease, rep.Record.LeaseLeft)
			c.move(shortLease - time.Millisecond)
			rep = claimShortly(t, s, k, "next")
			require.Equal(t, dedupe.Busy, rep.Verdict)
			require.Equal(t, time.Millisecond, rep.Record.LeaseLeft, "the lease does not begin again with each who asks")
			c.move(time.Millisecond)
			rep = claimShortly(t, s, k, "next")
			require.Equal(t, dedupe.Claimed, rep.Verdict)
			require.True(t, rep.Taken)
			require.Equal(t, 1, rep.Record.Deaths)
		})
	}
}

func TestClaim_ClockWentBack_OwnerWhoWorksKeepsItsClaim(t *testing.T) {
	c, s := newClock(t)
	k := key(t, scope(), "1")
	fence := claimShortly(t, s, k, "me").Record.Fence
	c.move(-time.Hour)
	require.Equal(t, dedupe.Busy, claimShortly(t, s, k, "other").Verdict)
	for range 5 {
		c.move(shortLease - time.Second)
		renewed := s.Renew(t.Context(), []dedupe.RenewRequest{{Grip: grip(k, "me"), Lease: shortLease}})[0]
		require.NoError(t, renewed.Err)
		require.Equal(t, fence, renewed.Record.Fence)
		require.Equal(t, dedupe.Busy, claimShortly(t, s, k, "other").Verdict)
	}
	require.NoError(t, s.Complete(t.Context(), []dedupe.CompleteRequest{{Grip: grip(k, "me"), Retention: retention}})[0].Err)
	require.Equal(t, dedupe.Done, claimShortly(t, s, k, "other").Verdict)
}

func TestForget_ClockWentBack_WaitsForOneLease(t *testing.T) {
	c, s := newClock(t)
	k := key(t, scope(), "1")
	claimShortly(t, s, k, "dead")
	c.move(-time.Hour)
	var busy *dedupe.BusyError
	require.ErrorAs(t, s.Forget(t.Context(), k, dedupe.Audit{}), &busy)
	require.Equal(t, shortLease, busy.RetryIn)
	c.move(shortLease)
	require.NoError(t, s.Forget(t.Context(), k, dedupe.Audit{}))
}
