package consumer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

var errNoTopic = errors.New("topic authorization failed")

// Nobody may write dead letters: the message waits for that, and its handler does not run again each time.
func TestProcess_LettersCannotBeStored_HandlerRunsNoOftenerThanThePolicySays(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		reason string
		runs   int // in one process
	}{
		{"fails", errNoStock, consumer.ReasonExhausted, 3},
		{"permanent", consumer.Permanent(errNoStock), consumer.ReasonPermanent, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inModes(t, modes, func(t *testing.T, w *world) {
				runs := 0
				process := func() *consumer.Pipeline {
					return w.pipeline(func(context.Context, *consumer.Message) error { runs++; return c.err }, func(cfg *consumer.Config) {
						cfg.Policy.Retry.Attempts, cfg.Policy.Retry.InPlace = 3, 1
					})
				}
				p := process()
				w.letters.fail = errNoTopic
				for range 20 {
					d := p.Process(t.Context(), order("a"), &w.letters)
					require.Equal(t, consumer.Again, d.Action)
					time.Sleep(5 * time.Second)
				}
				require.Equal(t, c.runs, runs)
				require.Equal(t, c.runs, w.state("a").Failures)
				for range 20 { // each restarted
					require.Equal(t, consumer.Again, process().Process(t.Context(), order("a"), &w.letters).Action)
				}
				require.Equal(t, 3, runs, "the count in the store says enough")

				w.letters.fail = nil
				d := p.Process(t.Context(), order("a"), &w.letters)
				require.Equal(t, consumer.Ack, d.Action)
				require.Equal(t, dedupe.Dead, d.Verdict)
				require.Equal(t, []string{c.reason}, w.letters.reasons())
				require.Equal(t, 3, runs)
			})
		})
	}
}

// Without Redis no claim of Transactional knows how often its message failed.
func TestProcess_LettersCannotBeStoredAndThereIsNoRedis_HandlerRunsNoOftener(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		runs := 0
		p := w.pipeline(func(context.Context, *consumer.Message) error { runs++; return errNoStock }, func(c *consumer.Config) {
			c.Guard = w.guard(func(c *dedupe.Config) { c.Store = nil })
			c.Policy.Retry.Attempts = 2
		})
		w.letters.fail = errNoTopic
		for range 10 {
			require.Equal(t, consumer.Again, p.Process(t.Context(), order("a"), &w.letters).Action)
		}
		require.Equal(t, 2, runs)
	})
}

// Its counts begin again when it is sent again, and what the process remembers does not stand in the way.
func TestRedrive_OfAMessageWhoseLetterWasLate_RunsAgain(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		broken := true
		work := func(context.Context, *consumer.Message) error {
			if broken {
				return errNoStock
			}
			return nil
		}
		attempts := func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 }
		p, other := w.pipeline(work, attempts), w.pipeline(work, attempts)
		w.letters.fail = errNoTopic
		require.Equal(t, consumer.Again, p.Process(t.Context(), order("a"), &w.letters).Action)
		w.letters.fail = nil
		require.Equal(t, consumer.Ack, other.Process(t.Context(), order("a"), &w.letters).Action)
		broken = false
		d := p.Process(t.Context(), resent(w.letters.got[0]), &w.letters)
		require.Equal(t, consumer.Ack, d.Action)
		require.Equal(t, dedupe.Claimed, d.Verdict, "%v", d.Err)
		require.Equal(t, 1, w.applied("a"))
	})
}

func TestProcessBatch_LettersCannotBeStored_HandlerRunsNoOftenerAndNeighboursAreApplied(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}, func(t *testing.T, w *world) {
		runs := 0
		p := w.pipeline(nil, func(c *consumer.Config) {
			c.Handler = nil
			c.BatchHandler = func(_ context.Context, ms []*consumer.Message) error {
				e := &consumer.BatchError{Errs: make([]error, len(ms))}
				for i, m := range ms {
					if m.ID() == "bad" {
						runs++
						e.Errs[i] = errNoStock
					}
				}
				return e
			}
			c.Policy.Retry.Attempts = 2
		})
		w.letters.fail = errNoTopic
		for _, id := range []string{"a", "b", "c", "d"} {
			ds := p.ProcessBatch(t.Context(), []*consumer.Message{order("bad"), order(id)}, &w.letters)
			require.Equal(t, consumer.Again, ds[0].Action)
			require.Equal(t, consumer.Ack, ds[1].Action, "%v", ds[1].Err)
		}
		require.Equal(t, 2, runs)
		w.letters.fail = nil
		ds := p.ProcessBatch(t.Context(), []*consumer.Message{order("bad"), order("e")}, &w.letters)
		require.Equal(t, []consumer.Action{consumer.Ack, consumer.Ack}, []consumer.Action{ds[0].Action, ds[1].Action})
		require.Equal(t, []string{consumer.ReasonExhausted}, w.letters.reasons())
	})
}
