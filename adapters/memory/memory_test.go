package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/adapters/memory"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what a nil Logger means
	goleak.VerifyTestMain(m)
}

const group = "inventory"

// bench is a broker, a log, and what handlers did.
type bench struct {
	t      *testing.T
	broker *memory.Broker
	log    *memstore.Log

	mu      sync.Mutex
	effects map[string]int
	order   map[string][]string // of the ids of a key
}

func newBench(t *testing.T) *bench {
	return &bench{t: t, broker: memory.NewBroker(), log: memstore.NewLog(), effects: map[string]int{}, order: map[string][]string{}}
}

func (b *bench) note(m *consumer.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.effects[m.ID()]++
	b.order[string(m.Key)] = append(b.order[string(m.Key)], m.ID())
}

func (b *bench) applied(id string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.effects[id]
}

// consumer is one more process of the group. Its handler is work, then the effect.
func (b *bench) consumer(work consumer.Handler, change ...func(*consumer.Config)) *memory.Consumer {
	g, err := dedupe.New(dedupe.Config{Scope: group, Mode: dedupe.Logged, Log: b.log})
	require.NoError(b.t, err)
	cfg := consumer.Config{Guard: g, ID: consumer.IDFromHeader("msg_id"), Handler: func(ctx context.Context, m *consumer.Message) error {
		if err := work(ctx, m); err != nil {
			return err
		}
		b.note(m)
		return nil
	}}
	for _, f := range change {
		f(&cfg)
	}
	pipe, err := consumer.NewPipeline(cfg)
	require.NoError(b.t, err)
	c, err := memory.NewConsumer(memory.Config{Broker: b.broker, Topics: []string{"orders"}}, pipe)
	require.NoError(b.t, err)
	return c
}

// start runs a consumer until stop, which returns what Run returned.
func (b *bench) start(c *memory.Consumer) (stop func() error) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

func (b *bench) publish(ids ...string) {
	for _, id := range ids {
		_, err := b.broker.Publish(b.t.Context(), "orders", memory.NewMessage(id, id))
		require.NoError(b.t, err)
	}
}

func (b *bench) settled() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 24*time.Hour) // of a bubble
	defer cancel()
	require.NoError(b.t, b.broker.WaitSettled(ctx, group, "orders"))
}

func (b *bench) letters() (ds []consumer.DeadLetter) {
	for d, err := range memory.OpenDeadLetters(b.broker, memory.DeadLetterTopic(group)).List(b.t.Context()) {
		require.NoError(b.t, err)
		ds = append(ds, d)
	}
	return ds
}

func fine(context.Context, *consumer.Message) error { return nil }

var errNoStock = errors.New("no stock")

func inBubble(t *testing.T, story func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) { story(t, newBench(t)) })
}

func TestConsumer_DuplicatesAndReplays_ApplyOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := b.start(b.consumer(fine))
		b.publish("a", "b", "a", "a")
		b.settled()
		require.NoError(t, b.broker.Redeliver(group, "orders"))
		require.Positive(t, b.broker.Lag(group, "orders"))
		b.settled()
		require.NoError(t, stop())
		require.Equal(t, map[string]int{"a": 1, "b": 1}, b.effects)
		require.Error(t, b.broker.Redeliver(group, "no such topic"))
	})
}

func TestConsumer_SeveralMembers_KeepTheOrderOfEachKeyWhileMembersComeAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		work := func(context.Context, *consumer.Message) error {
			time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
			return nil
		}
		stops := []func() error{b.start(b.consumer(work))}
		for i := range 300 {
			key := fmt.Sprintf("k%d", i%9)
			m := memory.NewMessage(fmt.Sprintf("%05d", i), "")
			m.Key = []byte(key)
			_, err := b.broker.Publish(t.Context(), "orders", m)
			require.NoError(t, err)
			switch {
			case i%60 == 20:
				stops = append(stops, b.start(b.consumer(work)))
			case i%60 == 50:
				require.NoError(t, stops[0]())
				stops = stops[1:]
			}
			time.Sleep(5 * time.Millisecond)
		}
		b.settled()
		for _, stop := range stops {
			require.NoError(t, stop())
		}
		require.Len(t, b.order, 9)
		for key, ids := range b.order {
			require.True(t, slices.IsSorted(ids), "%s: %v", key, ids)
		}
		for id, n := range b.effects {
			require.Equal(t, 1, n, id)
		}
		require.Len(t, b.effects, 300)
	})
}

func TestConsumer_Failures_GoThroughTheTiersToADeadLetterAndComeBackByRedrive(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		var runs []time.Duration
		stock := false
		start := time.Now()
		c := b.consumer(func(context.Context, *consumer.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if stock {
				return nil
			}
			runs = append(runs, time.Since(start).Round(100*time.Millisecond))
			return errNoStock
		}, func(c *consumer.Config) {
			c.Policy = consumer.Policy{Order: consumer.OrderNone, Retry: consumer.Retry{Attempts: 4, InPlace: 1, Tiers: []time.Duration{5 * time.Second, time.Minute}}}
		})
		stop := b.start(c)
		positions, err := b.broker.Publish(t.Context(), "orders", memory.NewMessage("a", "body"))
		require.NoError(t, err)
		b.settled()
		require.Equal(t, []time.Duration{0, 5 * time.Second, 65 * time.Second, 125 * time.Second}, runs)
		letters := b.letters()
		require.Len(t, letters, 1)
		require.Equal(t, consumer.ReasonExhausted, letters[0].Reason)
		require.Equal(t, 4, letters[0].Attempts)
		require.Equal(t, positions[0], letters[0].Message.Origin)
		require.Equal(t, "body", string(letters[0].Message.Value))
		require.Len(t, b.broker.Messages(group+".retry.5s"), 1)

		mu.Lock()
		stock = true
		mu.Unlock()
		g, err := dedupe.New(dedupe.Config{Scope: group, Mode: dedupe.Logged, Log: b.log})
		require.NoError(t, err)
		rep, err := consumer.Redrive(t.Context(), g, memory.OpenDeadLetters(b.broker, memory.DeadLetterTopic(group)), consumer.RedriveOptions{})
		require.NoError(t, err)
		require.Equal(t, 1, rep.Redriven)
		b.settled()
		require.Equal(t, 1, b.applied("a"))
		require.NoError(t, stop())
	})
}

func TestConsumer_NotAcknowledged_IsDeliveredToTheNextMember(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		hang := b.start(b.consumer(func(ctx context.Context, _ *consumer.Message) error { <-ctx.Done(); return ctx.Err() }))
		b.publish("a")
		synctest.Wait()
		start := time.Now()
		require.NoError(t, hang())
		require.Equal(t, 20*time.Second, time.Since(start), "the drain timeout")
		require.Zero(t, b.applied("a"))
		stop := b.start(b.consumer(fine))
		b.settled()
		require.Equal(t, 1, b.applied("a"))
		require.NoError(t, stop())
	})
}

func TestConsumer_Stop_FinishesWhatRunsAndLeavesTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.consumer(func(context.Context, *consumer.Message) error { time.Sleep(time.Second); return nil }, func(c *consumer.Config) { c.Policy.Concurrency = 1 })
		stop := b.start(c)
		b.publish("a", "b", "c")
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, consumer.PhaseRunning, c.State().Phase)
		require.NoError(t, stop())
		require.Equal(t, consumer.PhaseStopped, c.State().Phase)
		require.Len(t, b.effects, 2)
		require.EqualValues(t, 1, b.broker.Lag(group, "orders"))
	})
}

// DECISIONS 12: a handler that never returns: Run returns ErrDrainTimeout.
func TestConsumer_HandlerThatNeverReturns_IsNamedByRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		release := make(chan struct{})
		stop := b.start(b.consumer(func(context.Context, *consumer.Message) error { <-release; return errNoStock }))
		b.publish("a")
		synctest.Wait()
		require.ErrorIs(t, stop(), consumer.ErrDrainTimeout)
		close(release)
		synctest.Wait()
	})
}

func TestConsumer_PauseAndResume_KeepPartitionsAndLag(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.consumer(fine)
		require.Equal(t, consumer.PhaseIdle, c.State().Phase)
		stop := b.start(c)
		b.publish("a")
		b.settled()
		c.Pause()
		b.publish("b", "c")
		time.Sleep(time.Hour)
		require.Equal(t, memory.State{Phase: consumer.PhasePaused, Partitions: memory.DefaultPartitions}, c.State())
		require.EqualValues(t, 2, c.Lag())
		require.Zero(t, b.applied("b"))
		c.Resume()
		b.settled()
		require.Zero(t, c.Lag())
		require.NoError(t, stop())
		require.NoError(t, c.Run(canceled()), "it may run again, and end at once")
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// awayLog is a log that can be away.
type awayLog struct {
	*memstore.Log
	mu   sync.Mutex
	away bool
}

func (l *awayLog) set(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

func (l *awayLog) isAway() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

func (l *awayLog) Claim(ctx context.Context, r []dedupe.ClaimRequest) []dedupe.Reply {
	if !l.isAway() {
		return l.Log.Claim(ctx, r)
	}
	reps := make([]dedupe.Reply, len(r))
	for i := range reps {
		reps[i].Err = dedupe.ErrUnavailable
	}
	return reps
}

func (l *awayLog) Inspect(ctx context.Context, k []dedupe.Key) ([]dedupe.Record, error) {
	if l.isAway() {
		return nil, dedupe.ErrUnavailable
	}
	return l.Log.Inspect(ctx, k)
}

func (l *awayLog) Incarnation(ctx context.Context) (dedupe.Incarnation, error) {
	if l.isAway() {
		return "", dedupe.ErrUnavailable
	}
	return l.Log.Incarnation(ctx)
}

func TestConsumer_StoreAway_PausesAndGoesOnByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		log := &awayLog{Log: b.log}
		g, err := dedupe.New(dedupe.Config{Scope: group, Mode: dedupe.Logged, Log: log})
		require.NoError(t, err)
		c := b.consumer(fine, func(c *consumer.Config) { c.Guard = g })
		stop := b.start(c)
		b.publish("warm")
		b.settled()
		log.set(true)
		b.publish("a", "b", "c")
		time.Sleep(time.Hour)
		s := c.State()
		require.Equal(t, consumer.PhasePaused, s.Phase)
		require.ErrorIs(t, s.Err, dedupe.ErrUnavailable)
		log.set(false)
		b.settled()
		require.Equal(t, 1, b.applied("a"))
		require.Empty(t, b.letters())
		log.set(true)
		b.publish("d")
		time.Sleep(time.Second)
		require.NoError(t, stop(), "a stop during an outage")
	})
}

func TestConsumer_Halt_StopsTheRunnerOrPausesThePartition(t *testing.T) {
	for _, onHalt := range []consumer.OnHalt{consumer.StopRunner, consumer.PausePartition} {
		t.Run(onHalt.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				require.NoError(t, b.broker.CreateTopic("orders", 2))
				require.Error(t, b.broker.CreateTopic("orders", 2))
				var log bytes.Buffer
				c := b.consumer(func(_ context.Context, m *consumer.Message) error {
					if m.ID() == "bad" {
						return consumer.Permanent(errNoStock)
					}
					return nil
				}, func(c *consumer.Config) {
					c.Policy.DeadLetter.Off = true
					c.Policy.OnHalt = onHalt
					c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				stop := b.start(c)
				b.publish("bad", "a", "behind", "b")
				time.Sleep(time.Minute)
				if onHalt == consumer.StopRunner {
					require.Equal(t, consumer.PhaseHalted, c.State().Phase)
					require.ErrorIs(t, stop(), errNoStock)
					require.ErrorIs(t, c.State().Err, consumer.ErrNoDeadLetters)
					return
				}
				require.Equal(t, consumer.PhaseRunning, c.State().Phase)
				require.Equal(t, 1, b.applied("a"))
				require.Equal(t, 1, b.applied("b"))
				require.NoError(t, stop())
				require.Positive(t, b.broker.Lag(group, "orders"), "nothing of the bad message is acknowledged")
				require.Contains(t, log.String(), `msg="drained and stopped" group=inventory`)
				require.Contains(t, log.String(), "partition halted", "a consumer without a logger uses the pipeline's")
			})
		})
	}
}

func TestConsumer_AfterLetterBlock_StopsTheKeyUntilTheNextStart(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		work := func(_ context.Context, m *consumer.Message) error {
			if m.ID() == "a1" {
				return consumer.Permanent(errNoStock)
			}
			return nil
		}
		block := func(c *consumer.Config) { c.Policy.AfterLetter = consumer.Block }
		stop := b.start(b.consumer(work, block))
		for _, id := range []string{"a1", "a2", "b1"} {
			m := memory.NewMessage(id, "")
			m.Key = []byte(id[:1])
			_, err := b.broker.Publish(t.Context(), "orders", m)
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		require.Len(t, b.letters(), 1)
		require.Zero(t, b.applied("a2"))
		require.Equal(t, 1, b.applied("b1"))
		require.NoError(t, stop())
		stop = b.start(b.consumer(work, block))
		b.settled()
		require.Equal(t, 1, b.applied("a2"))
		require.NoError(t, stop())
	})
}

func TestConsumer_Batches_RunTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		require.NoError(t, b.broker.CreateTopic("orders", 1))
		var sizes []int
		b.publish("a", "b", "c", "a", "d")
		stop := b.start(b.consumer(nil, func(c *consumer.Config) {
			c.Handler = nil
			c.BatchHandler = func(_ context.Context, ms []*consumer.Message) error {
				sizes = append(sizes, len(ms))
				for _, m := range ms {
					b.note(m)
				}
				return nil
			}
			c.Batch = consumer.Batch{Max: 10, Wait: time.Second}
		}))
		b.settled()
		require.NoError(t, stop())
		require.Equal(t, []int{4}, sizes)
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, b.effects)
	})
}

func TestNewConsumer_ListsEveryProblem(t *testing.T) {
	_, err := memory.NewConsumer(memory.Config{}, nil)
	require.ErrorContains(t, err, "Config.Broker: nil")
	require.ErrorContains(t, err, "Config.Topics")
	require.ErrorContains(t, err, "pipeline is nil")
	require.ErrorContains(t, memory.Run(t.Context(), memory.Config{}, nil), "Config.Broker")
}

func TestBroker_RefusesWhatIsNotThere(t *testing.T) {
	b := memory.NewBroker()
	_, err := b.Publish(t.Context(), "")
	require.Error(t, err)
	_, err = b.Publish(canceled(), "orders", memory.NewMessage("a", ""))
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, b.Messages("orders"))
	require.Error(t, b.CreateTopic("orders", 0))
	_, err = b.Publish(t.Context(), "orders", memory.NewMessage("a", ""))
	require.NoError(t, err)
	require.Error(t, b.Rewind("g", consumer.Position{Topic: "orders", Partition: 99}))
	require.Error(t, b.Rewind("g", consumer.Position{Topic: "orders", Offset: 2}))
	require.NoError(t, b.Rewind("g", consumer.Position{Topic: "orders", Offset: 1}))
	require.ErrorIs(t, b.WaitSettled(canceled(), "another", "orders"), context.Canceled)
}

func TestConsumer_RunTwiceAtOnce_IsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := b.consumer(fine)
		stop := b.start(c)
		synctest.Wait()
		require.ErrorIs(t, c.Run(t.Context()), memory.ErrRunning)
		require.NoError(t, stop())
	})
}
