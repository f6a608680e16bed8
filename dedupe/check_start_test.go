package dedupe_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// Many processes start at once and the database is slow to take the scope's row: that is no reason to end.
func TestCheck_EnteringTheScopeIsNotAnswered_IsAskedAgain(t *testing.T) {
	for _, f := range []fault{refused, lostRequest, lostReply} {
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, dedupe.Logged)
				w.log.failsOnce(f, "enter")
				_, err := w.Check(context.Background(), dedupe.Environment{})
				require.NoError(t, err)
				require.Equal(t, 2, w.log.calls("enter"))
			})
		})
	}
}

func TestCheck_EnteringTheScopeIsNeverAnswered_EndsAfterHalfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		w.log.fails(lostRequest, "enter")
		start := time.Now()
		_, err := w.Check(context.Background(), dedupe.Environment{})
		require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)
		require.Equal(t, 30*time.Second, time.Since(start))
	})
}

func TestCheck_EnteringTheScopeIsRefusedForGood_IsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		w.log.fails(broken, "enter")
		_, err := w.Check(context.Background(), dedupe.Environment{})
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, 1, w.log.calls("enter"))
	})
}
