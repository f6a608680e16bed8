package consumer_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

// PROTOCOL 5, and STORES, dead-letter replay refused as a duplicate (Wolverine #1575): for a marked copy Dead is free; Done stays a
// duplicate; fails again: buried again, new letter.
func TestRedrive_MarkedCopy_RunsAgainAndIsBuriedAgainWhenItFailsAgain(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		fail := true
		work := func(context.Context, *consumer.Message) error {
			if fail {
				return errNoStock
			}
			return nil
		}
		few := func(c *consumer.Config) { c.Policy.Retry = consumer.Retry{Attempts: 2} }
		w.pipeline(work, few).Process(t.Context(), order("a"), &w.letters)
		require.Len(t, w.letters.got, 1)

		audit := dedupe.Audit{By: "ops", Reason: "stock corrected"}
		rep, err := consumer.Redrive(t.Context(), w.guard(), &w.letters, consumer.RedriveOptions{Audit: audit})
		require.NoError(t, err)
		require.Equal(t, consumer.RedriveReport{Seen: 1, Redriven: 1}, rep)
		require.Equal(t, "ops: stock corrected", w.letters.sent[0].RedrivenBy)

		d := w.pipeline(work, few).Process(t.Context(), resent(w.letters.sent[0]), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, 2, d.Failures, "the counts start again")
		require.Len(t, w.letters.got, 2, "a new letter")

		fail = false
		again := resent(w.letters.sent[0])
		again.Value = []byte(`{"order":"a","corrected":true}`)
		require.Equal(t, dedupe.Claimed, w.pipeline(work, few).Process(t.Context(), again, &w.letters).Verdict, "a corrected body is no conflict")
		require.Equal(t, "orders", again.Namespace())
		require.Equal(t, 1, w.applied("a"))
		second := resent(w.letters.sent[0])
		second.Value = again.Value
		require.Equal(t, dedupe.Done, w.pipeline(work, few).Process(t.Context(), second, &w.letters).Verdict, "a copy too many meets Done")
		require.Equal(t, 1, w.applied("a"))
	})
}

// A copy that failed and waits on a retry topic stays marked, so that it is not acknowledged unseen where its release got lost.
func TestRedrive_RetryCopyOfAMarkedMessage_StaysMarked(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		one := func(c *consumer.Config) {
			c.Policy = consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Attempts: 3, InPlace: 1, Tiers: []time.Duration{time.Second}}}
		}
		w.pipeline(func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }, one).Process(t.Context(), order("a"), &w.letters)
		m := resent(w.letters.got[0])
		d := w.pipeline(fails, one).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Failed, d.Why)
		h := consumer.RetryHeaders(m, d)
		mark, _ := h.Get(consumer.HeaderRedrive)
		require.Equal(t, "inventory", mark)
		letterless, _ := consumer.LetterHeaders(w.letters.got[0], true).Get(consumer.HeaderRedrive)
		require.Empty(t, letterless, "a letter is not marked before it is sent again")
	})
}

func TestRedrive_SkipsWhatIsDoneHeldDoubleOrAnothers(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		die := func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }
		for _, id := range []string{"dead", "done", "held", "free"} {
			w.pipeline(die).Process(t.Context(), order(id), &w.letters)
		}
		g := w.guard()
		claim := func(id string) *dedupe.Claim {
			out, err := g.Claim(t.Context(), dedupe.Delivery{ID: id, Namespace: "orders", Redriven: true, Fingerprint: dedupe.NoFingerprint})
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			return out.Claim
		}
		g.Complete(t.Context(), claim("done"))
		claim("held")
		g.Release(t.Context(), dedupe.ReleaseReason{HandBack: true}, claim("free"))

		double, foreign, anonymous := w.letters.got[0], w.letters.got[0], w.letters.got[0]
		foreign.Scope, anonymous.ID = "another", ""
		w.letters.got = append(w.letters.got, double, foreign, anonymous)

		rep, err := consumer.Redrive(t.Context(), w.guard(), &w.letters, consumer.RedriveOptions{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, consumer.RedriveReport{Seen: 7, Redriven: 2, Skipped: 5}, rep)
		require.Empty(t, w.letters.sent, "a dry run sends nothing")

		picked := consumer.RedriveOptions{Select: func(d consumer.DeadLetter) bool { return d.ID != "dead" && d.ID != "" }}
		rep, err = consumer.Redrive(t.Context(), w.guard(), &w.letters, picked)
		require.NoError(t, err)
		require.Equal(t, consumer.RedriveReport{Seen: 7, Redriven: 1, Skipped: 2}, rep, "what was picked by hand is sent where it is free")
		require.Equal(t, "free", w.letters.sent[0].ID)
	})
}

func TestRedrive_FailuresAreReportedOneByOne(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	w.pipeline(func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }).Process(t.Context(), order("a"), &w.letters)
	w.letters.fail = errors.New("broker is away")
	rep, err := consumer.Redrive(t.Context(), w.guard(), &w.letters, consumer.RedriveOptions{})
	require.NoError(t, err)
	require.Len(t, rep.Failed, 1)
	require.ErrorIs(t, rep.Failed[0], w.letters.fail)
	w.dbIs.down(dedupe.ErrUnavailable)
	rep, err = consumer.Redrive(t.Context(), w.guard(), &w.letters, consumer.RedriveOptions{})
	require.NoError(t, err)
	require.ErrorIs(t, rep.Failed[0], dedupe.ErrUnavailable)
	rep, err = consumer.Redrive(t.Context(), w.guard(), unreadable{&w.letters}, consumer.RedriveOptions{})
	require.NoError(t, err)
	require.Len(t, rep.Failed, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = consumer.Redrive(ctx, w.guard(), &w.letters, consumer.RedriveOptions{})
	require.ErrorIs(t, err, context.Canceled)
}

type unreadable struct{ *letters }

func (unreadable) List(context.Context) iter.Seq2[consumer.DeadLetter, error] {
	return func(yield func(consumer.DeadLetter, error) bool) {
		yield(consumer.DeadLetter{}, errors.New("no letter"))
	}
}

// Listed first, the copy of a conflict letter would run, and the original would meet its Done.
func TestRedrive_ConflictLetter_NeverTakesThePlaceOfTheOriginal(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		broken := true
		var bodies []string
		p := w.pipeline(func(_ context.Context, m *consumer.Message) error {
			if broken {
				return consumer.Permanent(errNoStock)
			}
			bodies = append(bodies, string(m.Value))
			return nil
		})
		original, other := order("1"), order("1")
		original.Value, other.Value = []byte("original"), []byte("other")
		p.Process(t.Context(), original, &w.letters)
		p.Process(t.Context(), other, &w.letters)
		require.Equal(t, []string{consumer.ReasonPermanent, consumer.ReasonConflict}, w.letters.reasons())
		slices.Reverse(w.letters.got)
		conflict := w.letters.got[0]
		broken = false

		d := p.Process(t.Context(), resent(conflict), &w.letters)
		require.Equal(t, dedupe.Conflict, d.Verdict, "sent by hand, it carries no mark")
		require.Empty(t, bodies)

		rep, err := consumer.Redrive(t.Context(), p.Guard(), &w.letters, consumer.RedriveOptions{Select: func(consumer.DeadLetter) bool { return true }})
		require.NoError(t, err)
		require.Equal(t, consumer.RedriveReport{Seen: 3, Redriven: 1, Skipped: 2}, rep)
		for _, d := range w.letters.sent {
			require.Equal(t, consumer.Ack, p.Process(t.Context(), resent(d), &w.letters).Action)
		}
		require.Equal(t, []string{"original"}, bodies)
		require.Equal(t, 1, w.applied("1"))
	})
}
