package dedupe_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// commitUnknown is a handler whose commit reply was lost: committed says whether the commit happened all the same.
func (w *world) commitUnknown(committed bool, answer error) func(context.Context, *dedupe.Claim) error {
	return func(ctx context.Context, c *dedupe.Claim) error {
		if committed {
			require.NoError(w.t, w.apply(ctx, c))
		}
		c.Note(dedupe.CommitUnknown)
		return answer
	}
}

// A plain read that finds no row does not prove that the server will not commit yet, and asking again proves it no better: only the
// insert of the next run does, since it waits for the old transaction.
func TestProtocol3_UnknownCommit_WhoseRowIsAbsent_IsSettledByTheNextRunsInsert(t *testing.T) {
	for name, answer := range map[string]error{"swallowed": nil, "returned": dedupe.ErrOutcomeUnknown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, dedupe.Transactional)
				_, err := w.Do(context.Background(), delivery("A"), w.commitUnknown(false, answer))
				require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)
				require.Equal(t, dedupe.StateAbsent, w.row("A").State, "nothing was counted")

				out, err := w.deliver("A")
				require.NoError(t, err)
				require.Equal(t, dedupe.Claimed, out.Verdict)
				require.Equal(t, 1, w.effects("A"))
				closes(t, w.Guard)
			})
		})
	}
}

// The old transaction commits after its delivery was given up: the next run must meet the row as another's, whatever the log thinks of
// an owner that repeats itself.
func TestProtocol3_UnknownCommit_ThatHappensLater_IsADuplicateForTheNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Transactional, withoutRedis)
		var first *dedupe.Claim
		_, err := w.Do(context.Background(), delivery("A"), func(_ context.Context, c *dedupe.Claim) error {
			first = c
			c.Note(dedupe.CommitUnknown)
			return dedupe.ErrOutcomeUnknown
		})
		require.ErrorIs(t, err, dedupe.ErrOutcomeUnknown)

		tx := w.db.Begin()
		tx.Set("A", 1)
		require.NoError(t, tx.Commit())
		require.NoError(t, w.db.Complete(context.Background(), []dedupe.CompleteRequest{first.RowToRecord()})[0].Err)

		out, err := w.deliver("A")
		require.NoError(t, err)
		require.Equal(t, dedupe.Done, out.Verdict)
		require.Equal(t, 1, w.effects("A"))
	})
}
