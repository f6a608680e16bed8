package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

// PROTOCOL 4: only the handler's own failures count, over restarts and moves to other consumers.
func TestProcess_FailuresAreCountedOverRestarts_ThenBuried(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		var attempts []int
		work := func(_ context.Context, m *consumer.Message) error {
			attempts = append(attempts, m.Claim().Attempt())
			return errNoStock
		}
		policy := func(c *consumer.Config) {
			c.Policy = consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Attempts: 5, InPlace: 2, Tiers: []time.Duration{5 * time.Second, time.Minute}}}
		}
		start := time.Now()
		d := w.pipeline(work, policy).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Disposition{Action: consumer.Again, Why: consumer.Failed, After: 5 * time.Second, Failures: 2, Tier: 0, Verdict: dedupe.Claimed, Err: d.Err}, d)
		require.ErrorIs(t, d.Err, errNoStock)
		require.GreaterOrEqual(t, time.Since(start), 160*time.Millisecond, "it waited in place")
		for range 2 {
			d = w.pipeline(work, policy).Process(t.Context(), order("a"), &w.letters)
			require.Equal(t, 1, d.Tier)
			require.Equal(t, time.Minute, d.After)
		}
		require.Equal(t, 4, d.Failures)
		d = w.pipeline(work, policy).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.True(t, d.Letter)
		require.Equal(t, dedupe.Dead, d.Verdict)
		require.Equal(t, 5, d.Failures)
		require.Equal(t, []string{consumer.ReasonExhausted}, w.letters.reasons())
		l := w.letters.got[0]
		require.Equal(t, "a", l.ID)
		require.Equal(t, "inventory", l.Scope)
		require.Equal(t, "orders", l.Namespace)
		require.Equal(t, 5, l.Attempts)
		require.Contains(t, l.Error, "no stock")
		require.Equal(t, dedupe.StateDead, w.state("a").State)

		d = w.pipeline(fine, policy).Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "a copy that is not marked is acknowledged unseen")
		require.Equal(t, dedupe.Dead, d.Verdict)
		require.False(t, d.Letter)
		require.Zero(t, w.applied("a"))
		if w.mode == dedupe.Transactional {
			require.Len(t, attempts, 5)
			return
		}
		require.Equal(t, []int{1, 2, 3, 4, 5}, attempts)
	})
}

// DECISIONS 7: same id, other payload.
func TestProcess_Conflict_BecomesALetterAndNeverTouchesTheKey(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(fine)
		p.Process(t.Context(), order("a"), &w.letters)
		before := w.state("a")
		other := order("a")
		other.Value = []byte("other")
		d := p.Process(t.Context(), other, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Conflict, d.Verdict)
		require.True(t, d.Letter)
		require.Equal(t, []string{consumer.ReasonConflict}, w.letters.reasons())
		require.Equal(t, before, w.state("a"))
		require.Equal(t, 1, w.applied("a"))

		d = w.pipeline(fine, func(c *consumer.Config) { c.Policy.Conflict = consumer.HaltOnIt }).Process(t.Context(), other, &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, dedupe.ErrConflict)
		d = w.pipeline(fine, func(c *consumer.Config) { c.Fingerprint = consumer.NoFingerprint() }).Process(t.Context(), other, &w.letters)
		require.Equal(t, dedupe.Done, d.Verdict, "trusted blindly")
	})
}

// DECISIONS 7: an unmarked copy that meets Dead with another fingerprint gets a conflict letter, then ack.
func TestProcess_DeadWithAnotherPayload_GetsALetterOfItsOwn(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) })
		p.Process(t.Context(), order("a"), &w.letters)
		other := order("a")
		other.Value = []byte("other")
		d := p.Process(t.Context(), other, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonPermanent, consumer.ReasonConflict}, w.letters.reasons())
		require.Equal(t, consumer.ReasonPermanent, w.state("a").Reason)
	})
}

func TestProcess_MissingID_GoesByPolicy(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		m := order("a")
		m.Headers = nil
		d := w.pipeline(fine).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonMissingID}, w.letters.reasons())
		require.Empty(t, w.letters.got[0].ID)

		d = w.pipeline(fine, func(c *consumer.Config) { c.Policy.MissingID = consumer.MissingIDHalt }).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, consumer.ErrMissingID)

		p := w.pipeline(fine, func(c *consumer.Config) { c.Policy.MissingID = consumer.MissingIDUsePosition })
		p.Process(t.Context(), m, &w.letters)
		p.Process(t.Context(), m, &w.letters)
		require.Equal(t, 1, w.applied(m.Position.String()))

		d = w.pipeline(fine, func(c *consumer.Config) {
			c.ID = func(*consumer.Message) (string, error) { panic("no such field") }
		}).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Ack, d.Action, "a panic of the id function is a missing id")
		require.Len(t, w.letters.got, 2)
	})
}

func TestProcess_FingerprintFails_IsUndecodable(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		m := order("a")
		m.Value = []byte("{")
		d := w.pipeline(fine, func(c *consumer.Config) { c.Fingerprint = consumer.FingerprintJSON("order") }).Process(t.Context(), m, &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonUndecodable}, w.letters.reasons())
		require.Equal(t, dedupe.StateAbsent, w.state("a").State)
		d = w.pipeline(fine, func(c *consumer.Config) {
			c.Fingerprint = func(*consumer.Message) (dedupe.Fingerprint, error) { return dedupe.Fingerprint{}, nil }
		}).Process(t.Context(), m, &w.letters)
		require.True(t, d.Letter, "a forgotten fingerprint is never NoFingerprint")
		require.Zero(t, w.applied("a"))
	})
}

func TestProcess_DeadLettersOff_Halts(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(fails, func(c *consumer.Config) {
			c.Policy.Retry.Attempts = 1
			c.Policy.DeadLetter.Off = true
		})
		d := p.Process(t.Context(), order("a"), &w.letters)
		require.Equal(t, consumer.Halt, d.Action)
		require.ErrorIs(t, d.Err, consumer.ErrNoDeadLetters)
		require.ErrorIs(t, d.Err, errNoStock)
		m := order("b")
		m.Headers = nil
		require.Equal(t, consumer.Halt, p.Process(t.Context(), m, &w.letters).Action)
		require.Equal(t, consumer.Halt, w.pipeline(fails, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 }).Process(t.Context(), order("c"), nil).Action)
		require.Empty(t, w.letters.reasons())
		require.Equal(t, consumer.Ack, w.pipeline(fine).Process(t.Context(), order("a"), &w.letters).Action, "after the restart it runs")
	})
}

// PROTOCOL 5: the letter, then Dead, then the ack [M: deadfirst].
func TestProcess_LetterNotStored_NothingIsBuriedAndNothingAcknowledged(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		w.letters.fail = errors.New("broker is away")
		p := w.pipeline(fails, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		for range 3 {
			d := p.Process(t.Context(), order("a"), &w.letters)
			require.Equal(t, consumer.Again, d.Action)
			require.Equal(t, consumer.Outage, d.Why)
			require.ErrorIs(t, d.Err, w.letters.fail)
		}
		require.NotEqual(t, dedupe.StateDead, w.state("a").State)
		w.letters.fail = fmt.Errorf("too large: %w", consumer.ErrLetterRefused)
		require.Equal(t, consumer.Halt, p.Process(t.Context(), order("a"), &w.letters).Action, "trying again cannot help")
		w.letters.fail = nil
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("a"), &w.letters).Action)
		require.Equal(t, dedupe.StateDead, w.state("a").State)
	})
}

// PROTOCOL 4: a message with two deaths runs alone in its process, and only a death alone leads to burying.
func TestProcess_MessageThatKillsItsProcess_RunsAloneThenIsBuried(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		delivery := dedupe.Delivery{ID: "killer", Namespace: "orders", Fingerprint: dedupe.FingerprintOf(order("killer").Value)}
		die := func(alone bool) {
			d := delivery
			d.Alone = alone
			out, err := w.guard().Claim(t.Context(), d)
			require.NoError(t, err)
			require.Equal(t, dedupe.Claimed, out.Verdict)
			time.Sleep(lease + time.Second)
		}
		die(false)
		die(false)
		running, most, alone := 0, 0, false
		p := w.pipeline(func(_ context.Context, m *consumer.Message) error {
			running++
			most = max(most, running)
			if m.ID() == "killer" {
				alone = running == 1
			}
			time.Sleep(time.Second)
			running--
			if m.ID() == "killer" {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) { c.Policy.Retry.InPlace = 1 })
		ended := make(chan consumer.Disposition, 3)
		for _, id := range []string{"b", "killer", "c"} {
			m := order(id)
			go func() { ended <- p.Process(t.Context(), m, &w.letters) }()
			synctest.Wait()
		}
		for range 3 {
			<-ended
		}
		require.True(t, alone, "nothing ran beside it")
		require.Equal(t, 1, w.applied("b"))
		require.Equal(t, 1, w.applied("c"))
		require.Empty(t, w.letters.reasons(), "two deaths bury nothing")

		for range 4 {
			die(true)
		}
		d := p.Process(t.Context(), order("killer"), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, []string{consumer.ReasonKills}, w.letters.reasons())
		require.Equal(t, dedupe.StateDead, w.state("killer").State)
	})
}

// A message that has to be alone holds the others back, and a handler that never returns holds it back: neither may last.
func TestProcess_HungHandlerBesideAKiller_OthersGoOn(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, w *world) {
		for range 2 {
			_, err := w.guard().Claim(t.Context(), dedupe.Delivery{ID: "killer", Namespace: "orders", Fingerprint: dedupe.NoFingerprint})
			require.NoError(t, err)
			time.Sleep(lease + time.Second)
		}
		free := make(chan struct{})
		p := w.pipeline(func(_ context.Context, m *consumer.Message) error {
			if m.ID() == "hung" {
				<-free
			}
			return nil
		})
		ended := make(chan consumer.Disposition, 2)
		process := func(id string) {
			m := order(id)
			go func() { ended <- p.Process(t.Context(), m, &w.letters) }()
			synctest.Wait()
		}
		process("hung")
		process("killer")
		process("other")
		d := <-ended
		require.Equal(t, consumer.Again, d.Action, "the killer")
		require.Equal(t, consumer.WhyBusy, d.Why, "%v", d.Err)
		require.Equal(t, 35*time.Second, d.After, "the others' turn")
		require.Equal(t, consumer.Ack, (<-ended).Action)
		require.Equal(t, 1, w.applied("other"))
		require.Zero(t, w.applied("killer"))

		close(free)
		<-ended
		require.Equal(t, consumer.Ack, p.Process(t.Context(), order("killer"), &w.letters).Action)
		require.Equal(t, 1, w.applied("killer"))
	})
}

func TestProcess_KillerHangsAlone_OthersGoOn(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, w *world) {
		for range 2 {
			_, err := w.guard().Claim(t.Context(), dedupe.Delivery{ID: "killer", Namespace: "orders", Fingerprint: dedupe.NoFingerprint})
			require.NoError(t, err)
			time.Sleep(lease + time.Second)
		}
		free := make(chan struct{})
		p := w.pipeline(func(_ context.Context, m *consumer.Message) error {
			if m.ID() == "killer" {
				<-free
			}
			return nil
		})
		ended := make(chan consumer.Disposition)
		killer := order("killer")
		go func() { ended <- p.Process(t.Context(), killer, &w.letters) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, id := range []string{"a", "b"} {
			require.Equal(t, consumer.Ack, p.Process(ctx, order(id), &w.letters).Action)
			require.Equal(t, 1, w.applied(id))
		}
		close(free)
		<-ended
	})
}
