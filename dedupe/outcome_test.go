package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// doer settles one delivery, as Do does it or as a runtime does it step by step.
type doer func(w *world, d dedupe.Delivery, fn func(context.Context, *dedupe.Claim) error) (dedupe.Verdict, error)

func byDo(w *world, d dedupe.Delivery, fn func(context.Context, *dedupe.Claim) error) (dedupe.Verdict, error) {
	out, err := w.Do(context.Background(), d, fn)
	return out.Verdict, err
}

func bySteps(w *world, d dedupe.Delivery, fn func(context.Context, *dedupe.Claim) error) (dedupe.Verdict, error) {
	ctx := context.Background()
	out, err := w.Claim(ctx, d)
	if err != nil || out.Verdict != dedupe.Claimed {
		return out.Verdict, err
	}
	c := out.Claim
	hctx, stop := w.Hold(ctx, c)
	defer stop() //nolint:errcheck // what a lost lease leads to shows in the store's answers
	cause := fn(hctx, c)
	if cause == nil {
		outs, errs := w.Complete(ctx, c)
		if !errors.Is(errs[0], dedupe.ErrNotApplied) {
			return outs[0].Verdict, errs[0]
		}
		cause = errs[0]
	}
	out, _, err = w.Fail(ctx, c, cause)
	if err == nil && out.Verdict != dedupe.Claimed {
		return out.Verdict, nil
	}
	if _, errs := w.Release(ctx, dedupe.ReleaseReason{Cause: cause, HandBack: err != nil}, c); errs[0] != nil && !errors.Is(errs[0], dedupe.ErrStale) {
		return 0, errs[0]
	}
	if err != nil {
		return 0, err
	}
	return 0, cause
}

// recorded is what a handler can leave behind before it returns.
var recorded = map[string]func(w *world, ctx context.Context, c *dedupe.Claim){
	"nothing":  func(*world, context.Context, *dedupe.Claim) {},
	"noeffect": func(_ *world, _ context.Context, c *dedupe.Claim) { c.NoEffect() },
	"written and committed": func(w *world, _ context.Context, c *dedupe.Claim) {
		tx := w.db.Begin()
		require.NoError(w.t, w.db.Record(tx, c))
		tx.Set("A", 1)
		require.NoError(w.t, tx.Commit())
	},
	"written and rolled back": func(w *world, _ context.Context, c *dedupe.Claim) {
		tx := w.db.Begin()
		require.NoError(w.t, w.db.Record(tx, c))
		tx.Set("A", 1)
	},
	"committed": func(w *world, ctx context.Context, c *dedupe.Claim) { require.NoError(w.t, w.apply(ctx, c)) },
	"duplicate of done": func(w *world, ctx context.Context, c *dedupe.Claim) {
		_, err := w.process(withoutRedis).Do(context.Background(), delivery("A"), w.apply)
		require.NoError(w.t, err)
		require.ErrorIs(w.t, w.apply(ctx, c), dedupe.ErrDuplicate)
	},
	"duplicate of dead": func(w *world, ctx context.Context, c *dedupe.Claim) {
		w.bury(w.process(withoutRedis), delivery("A"))
		require.ErrorIs(w.t, w.apply(ctx, c), dedupe.ErrDuplicate)
	},
	"duplicate of another body": func(w *world, ctx context.Context, c *dedupe.Claim) {
		other := delivery("A")
		other.Fingerprint = dedupe.FingerprintOf([]byte("another"))
		_, err := w.process(withoutRedis).Do(context.Background(), other, w.apply)
		require.NoError(w.t, err)
		require.ErrorIs(w.t, w.apply(ctx, c), dedupe.ErrDuplicate)
	},
	"duplicate of a claim": func(w *world, ctx context.Context, c *dedupe.Claim) {
		req := dedupe.ClaimRequest{Key: c.Key(), Owner: "left by another mode", Lease: lease, Retention: time.Hour}
		require.NoError(w.t, w.db.Claim(context.Background(), []dedupe.ClaimRequest{req})[0].Err)
		require.ErrorIs(w.t, w.apply(ctx, c), dedupe.ErrDuplicate)
	},
	"duplicate that vanished": func(_ *world, _ context.Context, c *dedupe.Claim) { c.Note(dedupe.RowDuplicate) },
	"skipped in a batch": func(w *world, _ context.Context, c *dedupe.Claim) {
		_, err := w.process(withoutRedis).Do(context.Background(), delivery("A"), w.apply)
		require.NoError(w.t, err)
		c.Note(dedupe.RowSkipped)
	},
	"skipped, and vanished": func(_ *world, _ context.Context, c *dedupe.Claim) { c.Note(dedupe.RowSkipped) },
	"unknown, committed": func(w *world, ctx context.Context, c *dedupe.Claim) {
		require.NoError(w.t, w.apply(ctx, c))
		c.Note(dedupe.CommitUnknown)
	},
	"unknown, absent": func(_ *world, _ context.Context, c *dedupe.Claim) { c.Note(dedupe.CommitUnknown) },
}

// outcome of a cell: verdict and error by their class, then what is where.
type outcome struct {
	verdict  dedupe.Verdict
	err      error
	row      dedupe.State
	failures int
	redis    dedupe.State
	effects  int
	anomaly  string
}

// TestOutcomes_OfTransactional is the table of DESIGN.md, "The transaction and its row", cell by cell.
func TestOutcomes_OfTransactional(t *testing.T) {
	const (
		absent, free, claimed, dead, done = dedupe.StateAbsent, dedupe.StateFree, dedupe.StateClaimed, dedupe.StateDead, dedupe.StateDone
		swallowed, late                   = "swallowed-duplicate", "error-after-commit"
	)
	unknown, unavailable, busy := dedupe.ErrOutcomeUnknown, dedupe.ErrUnavailable, dedupe.ErrBusy
	same := func(o outcome) [3]outcome { return [3]outcome{o, o, o} }
	noted := func(o outcome, code string) [3]outcome { // nil after a duplicate is an anomaly
		all := same(o)
		all[0].anomaly = code
		return all
	}
	failed := outcome{err: errHandler, row: free, failures: 1, redis: free}
	handedBack := outcome{err: unavailable, row: absent, redis: free}
	table := map[string][3]outcome{ // what the handler returned: nil, its own error, an outage
		"nothing":  {{err: dedupe.ErrNotRecorded, row: absent, redis: claimed}, failed, handedBack},
		"noeffect": {{verdict: dedupe.Claimed, row: done, redis: done}, failed, handedBack},
		"written and committed": {
			{verdict: dedupe.Claimed, row: done, redis: done, effects: 1},
			{verdict: dedupe.Done, row: done, redis: done, effects: 1, anomaly: late},
			{err: unavailable, row: done, redis: free, effects: 1},
		},
		"written and rolled back": {{err: dedupe.ErrNotApplied, row: free, failures: 1, redis: free}, failed, handedBack},
		"committed": {
			{verdict: dedupe.Claimed, row: done, redis: done, effects: 1},
			{verdict: dedupe.Done, row: done, redis: done, effects: 1, anomaly: late},
			{verdict: dedupe.Done, row: done, redis: done, effects: 1, anomaly: late},
		},
		"duplicate of done":         noted(outcome{verdict: dedupe.Done, row: done, redis: done, effects: 1}, swallowed),
		"duplicate of dead":         noted(outcome{verdict: dedupe.Dead, row: dead, redis: dead}, swallowed),
		"duplicate of another body": noted(outcome{verdict: dedupe.Conflict, err: dedupe.ErrConflict, row: done, redis: done, effects: 1}, swallowed),
		"duplicate of a claim":      noted(outcome{verdict: dedupe.Busy, err: busy, row: claimed, redis: free}, swallowed),
		"duplicate that vanished":   noted(outcome{verdict: dedupe.Busy, err: busy, row: absent, redis: free}, swallowed),
		"skipped in a batch":        same(outcome{verdict: dedupe.Done, row: done, redis: done, effects: 1}),
		"skipped, and vanished":     same(outcome{verdict: dedupe.Busy, err: busy, row: absent, redis: free}),
		"unknown, committed": {
			{verdict: dedupe.Claimed, row: done, redis: done, effects: 1},
			{verdict: dedupe.Done, row: done, redis: done, effects: 1},
			{verdict: dedupe.Done, row: done, redis: done, effects: 1},
		},
		"unknown, absent": same(outcome{err: unknown, row: absent, redis: free}),
	}
	require.Len(t, table, len(recorded))
	for what, leave := range recorded {
		for i, answer := range []error{nil, errHandler, dedupe.ErrUnavailable} {
			for way, settle := range map[string]doer{"do": byDo, "steps": bySteps} {
				t.Run(fmt.Sprintf("%s/%v/%s", what, answer, way), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w, want := newWorld(t, dedupe.Transactional), table[what][i]
						verdict, err := settle(w, delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
							leave(w, ctx, c)
							return answer
						})
						checkOutcome(t, w, want, verdict, err, way)

						if want.err != dedupe.ErrNotRecorded { // which the caller buries, then halts
							closes(t, w.Guard)
							w.Guard = w.process()
							time.Sleep(2 * lease)
							_, _ = w.deliver("A")
							want.effects = map[bool]int{true: 0, false: 1}[want.verdict == dedupe.Dead || what == "noeffect" && answer == nil]
						}
						require.Equal(t, want.effects, w.effects("A"), "after another delivery")
					})
				})
			}
		}
	}
}

func checkOutcome(t *testing.T, w *world, want outcome, verdict dedupe.Verdict, err error, way string) {
	t.Helper()
	switch {
	case want.err == nil:
		require.NoError(t, err)
		require.Equal(t, want.verdict, verdict)
	case way == "steps" && want.verdict != 0: // Busy and Conflict are values of the steps
		require.Equal(t, want.verdict, verdict)
	default:
		require.ErrorIs(t, err, want.err)
	}
	require.Equal(t, want.row, w.row("A").State, "in the log")
	require.Equal(t, want.failures, w.row("A").Failures)
	require.Equal(t, want.redis, w.inRedis("A").State, "in redis")
	require.Equal(t, want.failures, w.inRedis("A").Failures, "redis has the number that the log returned")
	require.Equal(t, want.effects, w.effects("A"))
	if want.anomaly == "" {
		require.Empty(t, w.hooks.codes())
	} else {
		require.Equal(t, []string{want.anomaly}, w.hooks.codes())
	}
}

// In the other modes nothing is recorded: the handler's answer decides.
func TestOutcomes_OfTheOtherModes(t *testing.T) {
	inEachMode(t, leasedModes, func(t *testing.T, mode dedupe.Mode) {
		for _, c := range []struct {
			answer error
			want   outcome
		}{
			{nil, outcome{verdict: dedupe.Claimed, row: dedupe.StateDone, redis: dedupe.StateDone}},
			{errHandler, outcome{err: errHandler, row: dedupe.StateFree, failures: 1, redis: dedupe.StateFree}},
			{dedupe.ErrUnavailable, outcome{err: dedupe.ErrUnavailable, row: dedupe.StateFree, redis: dedupe.StateFree}},
			{dedupe.ErrDuplicate, outcome{err: dedupe.ErrDuplicate, row: dedupe.StateFree, failures: 1, redis: dedupe.StateFree}},
		} {
			for way, settle := range map[string]doer{"do": byDo, "steps": bySteps} {
				t.Run(fmt.Sprintf("%v/%s", c.answer, way), func(t *testing.T) {
					w := newWorld(t, mode)
					verdict, err := settle(w, delivery("A"), func(context.Context, *dedupe.Claim) error { return c.answer })
					want := c.want
					if mode == dedupe.RedisOnly {
						want.row = dedupe.StateAbsent
						require.Equal(t, want.failures, w.inRedis("A").Failures)
						require.Equal(t, want.redis, w.inRedis("A").State)
						if want.err != nil {
							require.ErrorIs(t, err, want.err)
						} else {
							require.NoError(t, err)
						}
						return
					}
					checkOutcome(t, w, want, verdict, err, way)
					closes(t, w.Guard)
				})
			}
		}
	})
}

// A claim whose commit is known takes no second row; neither does one of another mode, of another log, or of a handler that has returned.
func TestRecord_WhereItDoesNotBelong_IsRefusedByName(t *testing.T) {
	w := newWorld(t, dedupe.Transactional)
	var kept *dedupe.Claim
	_, err := w.Do(context.Background(), delivery("A"), func(ctx context.Context, c *dedupe.Claim) error {
		kept = c
		err := memstore.NewLog().InTx(ctx, func(*memstore.Tx) error { return nil })
		require.ErrorIs(t, err, dedupe.ErrNotRecorded)
		require.ErrorContains(t, err, "this is not the log of the guard")
		require.NotContains(t, err.Error(), "handler returned")
		require.NoError(t, w.apply(ctx, c))
		require.ErrorIs(t, w.apply(ctx, c), dedupe.ErrRecorded)
		return nil
	})
	require.NoError(t, err)
	require.ErrorIs(t, kept.Recordable(w.db), dedupe.ErrNoClaim, "the handler has returned")
	require.ErrorIs(t, (*dedupe.Claim)(nil).Recordable(w.db), dedupe.ErrNoClaim)
	require.ErrorIs(t, w.db.InTx(context.Background(), func(*memstore.Tx) error { return nil }), dedupe.ErrNoClaim)
	require.Equal(t, 1, w.effects("A"))

	l := newWorld(t, dedupe.Logged)
	_, err = l.Do(context.Background(), delivery("A"), func(ctx context.Context, _ *dedupe.Claim) error {
		return l.db.InTx(ctx, func(*memstore.Tx) error { return nil })
	})
	require.ErrorIs(t, err, dedupe.ErrWrongMode)
}
