package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

func TestNewPipeline_ListsEveryProblem(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	_, err := consumer.NewPipeline(consumer.Config{
		Guard: w.guard(), BatchHandler: func(context.Context, []*consumer.Message) error { return nil },
		Middleware: []consumer.Middleware{nil}, Batch: consumer.Batch{Max: -1}, Hooks: []consumer.Hook{"no hook"},
		Policy: consumer.Policy{Concurrency: -1, StoreOutage: consumer.OutageProcessUnprotected, Retry: consumer.Retry{Permanent: []string{"no_such"}}},
		Errors: map[string]func(error) bool{"unknown_sku": func(error) bool { return true }},
	})
	for _, want := range []string{
		"Config.ID: nil", "Middleware: does not go with BatchHandler", "Middleware: [0]: nil", "Batch: -1", "Hooks: [0]: string",
		`concurrency: "-1" is out of range; use 1 to 100000`, "process_unprotected is for redis-only", `no error is named "no_such"; Config.Errors has: unknown_sku`,
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = consumer.NewPipeline(consumer.Config{})
	require.ErrorContains(t, err, "Config.Guard: nil")
	require.ErrorContains(t, err, "set Handler or BatchHandler")
}

func TestNewPipeline_NilLogger_IsTheDefaultOne(t *testing.T) {
	w := newWorld(t, dedupe.Logged)
	require.Same(t, slog.Default(), w.pipeline(fine).Logger())
	mine := slog.New(slog.DiscardHandler)
	require.Same(t, mine, w.pipeline(fine, func(c *consumer.Config) { c.Logger = mine }).Logger())
}

type recorder struct {
	settled []consumer.Disposition
	handled []error
	letters []string
}

func (r *recorder) OnSettled(_ context.Context, _ *consumer.Message, d consumer.Disposition, took time.Duration) {
	r.settled = append(r.settled, d)
	panic("hooks must not stop a consumer")
}

func (r *recorder) OnHandled(_ context.Context, m *consumer.Message, attempt int, _ time.Duration, err error) {
	if m.Claim() == nil || attempt != m.Claim().Attempt() {
		err = errors.New("no claim in the hook")
	}
	r.handled = append(r.handled, err)
}

func (r *recorder) OnDeadLetter(_ context.Context, d consumer.DeadLetter) {
	r.letters = append(r.letters, d.Reason)
}

func TestPipeline_HooksSeeEverythingAndTheLogNamesNoIDsAndNoPayloads(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		var log bytes.Buffer
		r := &recorder{}
		p := w.pipeline(func(context.Context, *consumer.Message) error { return errNoStock }, func(c *consumer.Config) {
			c.Policy.Retry = consumer.Retry{Attempts: 2}
			c.Hooks = []consumer.Hook{r}
			c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		p.Process(t.Context(), order("customer-4711"), &w.letters)
		p.Process(t.Context(), order("customer-4711"), &w.letters)
		require.Len(t, r.settled, 2)
		require.Equal(t, []error{errNoStock, errNoStock}, r.handled)
		require.Equal(t, []string{consumer.ReasonExhausted}, r.letters)
		require.Contains(t, log.String(), "outcome=ack verdict=dead")
		require.Contains(t, log.String(), "key=inventory/")
		require.Contains(t, log.String(), "hook panicked")
		require.NotContains(t, log.String(), "customer-4711")
	})
}

func TestPipeline_AFailureThatIsTriedAgainInPlace_IsToldOnce(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		var log bytes.Buffer
		runs := 0
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			if runs++; runs == 1 {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), order("a"), &w.letters).Verdict)
		require.Equal(t, 1, strings.Count(log.String(), "level="), log.String())
		require.Regexp(t, `level=INFO msg="failed; trying again in place" topic=orders .* key=inventory/\S+ failures=1 after=\S+ err="no stock`, log.String())
	})
}

func TestPipeline_ADeadLetter_IsToldWithItsKeyAndWhereItWent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		var log bytes.Buffer
		p := w.pipeline(func(context.Context, *consumer.Message) error { return consumer.Permanent(errNoStock) }, func(c *consumer.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		require.True(t, p.Process(t.Context(), order("a"), namedLetters{&w.letters}).Letter)
		require.Regexp(t, `level=WARN msg="dead letter" topic=orders .* key=inventory/\S+ reason=permanent attempts=1 err=.* to=inventory.dlq`, log.String())
		log.Reset()
		require.True(t, p.Process(t.Context(), order(""), &w.letters).Letter)
		require.NotContains(t, log.String(), "key=", "it has none")
		require.NotContains(t, log.String(), "to=", "nobody knows")
	})
}

// namedLetters tell where they go.
type namedLetters struct{ *letters }

func (namedLetters) Topic() string { return "inventory.dlq" }

func TestPipeline_Check_PrintsThePromiseAndThePolicy(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.RedisOnly}, func(t *testing.T, w *world) {
		var log bytes.Buffer
		p := w.pipeline(fine, func(c *consumer.Config) {
			c.Policy.StoreOutage = consumer.OutageProcessUnprotected
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		rep, err := p.Check(t.Context(), dedupe.Environment{})
		require.NoError(t, err)
		require.NotEmpty(t, rep.Promise)
		require.Contains(t, log.String(), "handler_timeout 30s, concurrency 16")
		require.Contains(t, log.String(), "dead letters topic <group>.dlq", "nobody has said of which group")
		require.Contains(t, log.String(), "duplicates are applied again", "printed at every start")
		_, err = p.CheckWith(t.Context(), dedupe.Environment{}, "shop.dlq")
		require.NoError(t, err)
		require.Contains(t, log.String(), "dead letters topic shop.dlq")
	})
}

func TestSettle_WaitsThroughOutagesAndFailuresInPlace(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		n := 0
		var log bytes.Buffer
		p := w.pipeline(func(context.Context, *consumer.Message) error {
			if n++; n < 6 {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		w.dbIs.down(dedupe.ErrUnavailable)
		w.redisIs.down(dedupe.ErrUnavailable)
		defer func() {
			require.Equal(t, 1, strings.Count(log.String(), "level=WARN"), "the outage is told once:\n%s", log.String())
			require.Contains(t, log.String(), `level=WARN msg="outage; trying again until it ends"`)
		}()
		time.AfterFunc(time.Hour, func() { w.dbIs.up(); w.redisIs.up() })
		start := time.Now()
		require.NoError(t, p.Settle(t.Context(), order("a"), &w.letters))
		require.GreaterOrEqual(t, time.Since(start), time.Hour)
		require.Equal(t, 1, w.applied("a"))
		require.NoError(t, p.Settle(t.Context(), order("a"), &w.letters), "a duplicate")
	})
}

func TestSettle_EndsWithHaltContextAndDrain(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p := w.pipeline(fails, func(c *consumer.Config) { c.Policy.Retry = consumer.Retry{Attempts: 1}; c.Policy.DeadLetter.Off = true })
		require.ErrorIs(t, p.Settle(t.Context(), order("a"), nil), consumer.ErrNoDeadLetters)

		p = w.pipeline(func(context.Context, *consumer.Message) error { return consumer.RetryAfter(time.Hour, errNoStock) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Settle(ctx, order("b"), &w.letters), context.DeadlineExceeded)
		begun := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(begun) })
		err := p.Settle(consumer.WithDrain(t.Context(), begun), order("b"), &w.letters)
		require.ErrorIs(t, err, consumer.ErrDraining)
		require.ErrorIs(t, err, errNoStock)
		require.Empty(t, w.letters.reasons())
	})
}

func TestJSON_DecodesTheBodyAndNamesThePlaceOfAMistake(t *testing.T) {
	type body struct {
		SKU string
		Qty int
	}
	h := consumer.JSON(func(_ context.Context, m consumer.Decoded[body]) error {
		require.Equal(t, body{"a", 2}, m.Body)
		require.NotNil(t, m.Message)
		return nil
	})
	require.NoError(t, h(t.Context(), &consumer.Message{Value: []byte(`{"sku":"a","qty":2}`)}))
	for value, want := range map[string]string{
		`{"sku":"a","qty":"4711 secret"}`: `field "Qty"`,
		`{"sku":`:                         "wrong syntax at byte 7",
		`{"qty":99999999999999999999}`:    `field "Qty"`,
	} {
		err := h(t.Context(), &consumer.Message{Value: []byte(value)})
		require.True(t, consumer.IsPermanent(err))
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "9999")
	}
}

func TestByTopic_ChoosesByTheOriginTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		p := w.pipeline(nil, func(c *consumer.Config) {
			c.Handler = consumer.ByTopic(map[string]consumer.Handler{"orders": w.handler(fine)})
		})
		m := order("a")
		m.Origin = m.Position
		m.Position = consumer.Position{Topic: "inventory.retry.1s"}
		require.Equal(t, dedupe.Claimed, p.Process(t.Context(), m, &w.letters).Verdict)
	})
}

func TestNames_AreFromClosedSets(t *testing.T) {
	require.Equal(t, "again", consumer.Again.String())
	require.Equal(t, "busy", consumer.WhyBusy.String())
	require.Equal(t, "unknown", consumer.Action(9).String())
	require.Empty(t, consumer.Why(0).String())
	var phases []string
	for p := consumer.PhaseIdle; p <= consumer.PhaseHalted; p++ {
		phases = append(phases, p.String())
	}
	require.Equal(t, []string{"idle", "starting", "running", "paused", "draining", "stopped", "halted"}, phases)
	require.Equal(t, "unknown", (consumer.PhaseHalted + 1).String())
}
