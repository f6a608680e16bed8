package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
)

// batches is a pipeline of one more process with a batch handler; ran has the ids of each run.
func (w *world) batches(h func(ctx context.Context, ms []*consumer.Message) error, change ...func(*consumer.Config)) (p *consumer.Pipeline, ran func() [][]string) {
	var mu sync.Mutex
	var runs [][]string
	change = append([]func(*consumer.Config){func(c *consumer.Config) {
		c.Handler = nil
		c.BatchHandler = func(ctx context.Context, ms []*consumer.Message) error {
			var ids []string
			for _, m := range ms {
				ids = append(ids, m.ID())
			}
			mu.Lock()
			runs = append(runs, ids)
			mu.Unlock()
			return h(ctx, ms)
		}
	}}, change...)
	return w.pipeline(nil, change...), func() [][]string {
		mu.Lock()
		defer mu.Unlock()
		return runs
	}
}

func (w *world) apply(ms ...*consumer.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range ms {
		w.effects[m.ID()]++
	}
}

func ordersOf(ids ...string) (ms []*consumer.Message) {
	for _, id := range ids {
		ms = append(ms, order(id))
	}
	return ms
}

func keyed(key string, ms ...*consumer.Message) []*consumer.Message {
	for _, m := range ms {
		m.Key = []byte(key)
	}
	return ms
}

func summary(ds []consumer.Disposition) (s []string) {
	for _, d := range ds {
		one := d.Action.String()
		if d.Action == consumer.Again {
			one += " " + d.Why.String()
		}
		if d.Letter {
			one += " letter"
		}
		s = append(s, one+" "+d.Verdict.String())
	}
	return s
}

var claimModes = []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly}

// PROTOCOL 6, and STORES, the same id twice in one batch (MassTransit #2502): the second shares the first's end.
func TestProcessBatch_SameIDTwice_SecondIsAskedAgainWhenTheFirstHasEnded(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p, ran := w.batches(func(_ context.Context, ms []*consumer.Message) error { w.apply(ms...); return nil })
		ds := p.ProcessBatch(t.Context(), ordersOf("a", "b", "a", "c", "a"), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack claimed", "ack done", "ack claimed", "ack done"}, summary(ds))
		require.Equal(t, [][]string{{"a", "b", "c"}}, ran())

		p, ran = w.batches(func(_ context.Context, ms []*consumer.Message) error { return errNoStock }, func(c *consumer.Config) { c.Policy.Retry.InPlace = 1 })
		ds = p.ProcessBatch(t.Context(), ordersOf("x", "x"), &w.letters)
		require.Equal(t, []string{"again failed claimed", "again busy unknown"}, summary(ds))
		require.Equal(t, [][]string{{"x"}}, ran(), "the second goes back with the first, uncounted")
		require.Equal(t, 1, w.state("x").Failures)
	})
}

// PROTOCOL 6: a batch that fails for a data error is split until the row is alone; only what fails alone is counted.
func TestProcessBatch_OneBadMessage_IsFoundBySplittingAndOnlyItIsCounted(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p, ran := w.batches(func(_ context.Context, ms []*consumer.Message) error {
			if slices.ContainsFunc(ms, func(m *consumer.Message) bool { return m.ID() == "5" }) {
				return errNoStock
			}
			w.apply(ms...)
			return nil
		}, func(c *consumer.Config) { c.Policy.Retry = consumer.Retry{Attempts: 2} })
		var ids []string
		for i := range 8 {
			ids = append(ids, fmt.Sprint(i))
		}
		ds := p.ProcessBatch(t.Context(), ordersOf(ids...), &w.letters)
		for i, d := range ds {
			require.Equal(t, consumer.Ack, d.Action)
			require.Equal(t, i == 5, d.Letter)
			require.Equal(t, i != 5, w.applied(ids[i]) == 1)
			require.Zero(t, w.state(ids[i]).Deaths)
			if i != 5 {
				require.Zero(t, w.state(ids[i]).Failures)
			}
		}
		require.Equal(t, [][]string{{"0", "1", "2", "3", "4", "5", "6", "7"}, {"0", "1", "2", "3"}, {"4", "5", "6", "7"}, {"4", "5"}, {"4"}, {"5"}, {"6", "7"}, {"5"}}, ran())
		require.Equal(t, 2, w.letters.got[0].Attempts)
	})
}

func TestProcessBatch_BatchError_EndsEachAsItSays(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		first := true
		p, ran := w.batches(func(_ context.Context, ms []*consumer.Message) error {
			errs := make([]error, len(ms))
			for i, m := range ms {
				switch {
				case m.ID() == "bad":
					errs[i] = consumer.Permanent(errNoStock)
				case m.ID() == "slow" && first:
					first = false
					errs[i] = errNoStock
				default:
					w.apply(m)
				}
			}
			return &consumer.BatchError{Errs: errs}
		})
		ds := p.ProcessBatch(t.Context(), ordersOf("a", "bad", "slow", "b"), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack letter dead", "ack claimed", "ack claimed"}, summary(ds))
		require.Equal(t, [][]string{{"a", "bad", "slow", "b"}, {"slow"}}, ran())
		require.Equal(t, 1, w.applied("slow"))

		p, _ = w.batches(func(_ context.Context, ms []*consumer.Message) error {
			return &consumer.BatchError{Errs: make([]error, len(ms)+1)}
		}, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		ds = p.ProcessBatch(t.Context(), ordersOf("x", "y"), &w.letters)
		require.Equal(t, []string{"ack letter dead", "ack letter dead"}, summary(ds), "with another number of entries it is an error like any other")
	})
}

func TestProcessBatch_Panic_IsSplitLikeAnError(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p, _ := w.batches(func(_ context.Context, ms []*consumer.Message) error {
			for _, m := range ms {
				if m.ID() == "b" {
					panic("nil map")
				}
			}
			w.apply(ms...)
			return nil
		}, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		ds := p.ProcessBatch(t.Context(), ordersOf("a", "b", "c"), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack letter dead", "ack claimed"}, summary(ds))
	})
}

// PROTOCOL 6: no claim is held by a delivery that is not running, so two processes never wait for each other's claims.
func TestProcessBatch_TwoProcessesInOppositeOrder_DoNotWaitForEachOther(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		slow := func(_ context.Context, ms []*consumer.Message) error {
			time.Sleep(time.Second)
			w.apply(ms...)
			return nil
		}
		p, _ := w.batches(slow)
		q, _ := w.batches(slow)
		start := time.Now()
		done := make(chan []consumer.Disposition, 2)
		ab, ba := ordersOf("a", "b", "c"), ordersOf("c", "b", "a", "d")
		go func() { done <- p.ProcessBatch(t.Context(), ab, &w.letters) }()
		go func() { done <- q.ProcessBatch(t.Context(), ba, &w.letters) }()
		for range 2 {
			for _, d := range <-done {
				require.Equal(t, consumer.Ack, d.Action)
			}
		}
		for _, id := range []string{"a", "b", "c", "d"} {
			require.Equal(t, 1, w.applied(id))
		}
		require.Less(t, time.Since(start), 4*time.Second, "no lease had to end")
	})
}

func TestProcessBatch_OrderKey_RetriedMessageHoldsBackItsKeyOnly(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		fails := 1
		var applied []string
		p, _ := w.batches(func(_ context.Context, ms []*consumer.Message) error {
			if ms[0].ID() == "a1" && fails > 0 {
				if len(ms) == 1 {
					fails--
				}
				return errNoStock
			}
			for _, m := range ms {
				applied = append(applied, m.ID())
			}
			return nil
		})
		ms := append(keyed("a", ordersOf("a1", "a2")...), keyed("b", ordersOf("b1")...)...)
		ds := p.ProcessBatch(t.Context(), ms, &w.letters)
		require.Equal(t, []string{"ack claimed", "ack claimed", "ack claimed"}, summary(ds))
		require.Equal(t, []string{"b1", "a1", "a2"}, applied)
	})
}

func TestProcessBatch_OrderKey_MessageThatGoesBackTakesItsKeyAlong(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p, ran := w.batches(func(_ context.Context, ms []*consumer.Message) error {
			if ms[0].ID() == "a1" {
				return errNoStock
			}
			w.apply(ms...)
			return nil
		}, func(c *consumer.Config) { c.Policy.Retry.InPlace = 1 })
		ms := append(keyed("a", ordersOf("a1", "a2")...), keyed("b", ordersOf("b1")...)...)
		ds := p.ProcessBatch(t.Context(), ms, &w.letters)
		require.Equal(t, []string{"again failed claimed", "again busy unknown", "ack claimed"}, summary(ds))
		require.Equal(t, ds[0].After, ds[1].After)
		require.Zero(t, w.applied("a2"))
		require.NotContains(t, ran(), []string{"a2"})
	})
}

func TestProcessBatch_MaxAndLateMessages(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p, ran := w.batches(func(_ context.Context, ms []*consumer.Message) error { return nil }, func(c *consumer.Config) { c.Batch.Max = 2 })
		require.Equal(t, consumer.Batch{Max: 2}, p.Batch())
		m := order("no id")
		m.Headers = nil
		ds := p.ProcessBatch(t.Context(), append(ordersOf("a", "b", "c"), m), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack claimed", "ack claimed", "ack letter unknown"}, summary(ds))
		require.Equal(t, [][]string{{"a", "b"}, {"c"}}, ran())
		require.Empty(t, p.ProcessBatch(t.Context(), nil, &w.letters))
		d := p.Process(t.Context(), order("single"), &w.letters)
		require.Equal(t, dedupe.Claimed, d.Verdict, "Process runs a batch handler with one")
	})
}

func TestProcessBatch_WithAPlainHandler_GoesOneByOne(t *testing.T) {
	inModes(t, modes, func(t *testing.T, w *world) {
		p := w.pipeline(func(_ context.Context, m *consumer.Message) error {
			if m.ID() == "a1" {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) { c.Policy.Retry.InPlace = 1 })
		require.Equal(t, 1, p.Batch().Max)
		ms := append(keyed("a", ordersOf("a1", "a2")...), keyed("b", ordersOf("b1", "b1")...)...)
		ds := p.ProcessBatch(t.Context(), ms, &w.letters)
		require.Equal(t, []string{"again failed claimed", "again busy unknown", "ack claimed", "ack done"}, summary(ds))
	})
}

// PROTOCOL 4: cancellation counts nothing, in batches too, and nothing is split by it.
func TestProcessBatch_DrainTimeout_HandsAllBackUncounted(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancelCause(t.Context())
		p, ran := w.batches(func(ctx context.Context, ms []*consumer.Message) error { <-ctx.Done(); return ctx.Err() })
		time.AfterFunc(time.Second, func() { cancel(consumer.ErrDraining) })
		ds := p.ProcessBatch(ctx, ordersOf("a", "b", "b"), &w.letters)
		require.Equal(t, []string{"again draining unknown", "again draining unknown", "again draining unknown"}, summary(ds))
		require.Len(t, ran(), 1)
		require.Zero(t, w.state("a").Failures)
		require.Equal(t, dedupe.StateFree, w.state("a").State)
	})
}

func TestProcessBatch_Outage_HandsAllBack(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p, ran := w.batches(func(context.Context, []*consumer.Message) error { return nil })
		p.ProcessBatch(t.Context(), ordersOf("warm"), &w.letters)
		w.dbIs.down(dedupe.ErrUnavailable)
		w.redisIs.down(dedupe.ErrUnavailable)
		ds := p.ProcessBatch(t.Context(), ordersOf("a", "b", "b"), &w.letters)
		require.Equal(t, []string{"again outage unknown", "again outage unknown", "again outage unknown"}, summary(ds))
		require.Len(t, ran(), 1)
	})
}

func TestProcessBatch_Halt_StopsWhatHasNotRun(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		p, _ := w.batches(func(_ context.Context, ms []*consumer.Message) error { return errNoStock },
			func(c *consumer.Config) {
				c.Policy.Retry.Attempts = 1
				c.Policy.DeadLetter.Off = true
			})
		ds := p.ProcessBatch(t.Context(), ordersOf("a", "b", "c", "d"), &w.letters)
		require.Equal(t, []string{"halt unknown", "again draining unknown", "again draining unknown", "again draining unknown"}, summary(ds))
	})
}

func TestProcessBatch_MessageThatKillsItsProcess_RunsAlone(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		for range 2 {
			_, err := w.guard().Claim(t.Context(), dedupe.Delivery{ID: "k", Namespace: "orders", Fingerprint: dedupe.FingerprintOf(order("k").Value)})
			require.NoError(t, err)
			time.Sleep(lease + time.Second)
		}
		p, ran := w.batches(func(_ context.Context, ms []*consumer.Message) error {
			require.Equal(t, ms[0].ID() == "k", w.state("k").Alone)
			return nil
		})
		ds := p.ProcessBatch(t.Context(), ordersOf("a", "k", "b"), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack claimed", "ack claimed"}, summary(ds))
		require.Equal(t, [][]string{{"a", "b"}, {"k"}}, ran())
	})
}

func TestJSONBatch_UndecodableMessagesDieAlone(t *testing.T) {
	type body struct{ Qty int }
	inModes(t, claimModes, func(t *testing.T, w *world) {
		handler := func(err func(n int) error) consumer.BatchHandler {
			return consumer.JSONBatch(func(_ context.Context, ms []consumer.Decoded[body]) error {
				if e := err(len(ms)); e != nil {
					return e
				}
				for _, m := range ms {
					w.apply(m.Message)
				}
				return nil
			})
		}
		messages := func(prefix string) []*consumer.Message {
			ms := ordersOf(prefix+"1", prefix+"2", prefix+"3")
			ms[0].Value, ms[1].Value, ms[2].Value = []byte(`{"qty":1}`), []byte(`{"qty":"secret"}`), []byte(`{"qty":3}`)
			return ms
		}
		p, _ := w.batches(handler(func(int) error { return nil }))
		ds := p.ProcessBatch(t.Context(), messages("a"), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack letter dead", "ack claimed"}, summary(ds))
		require.Equal(t, consumer.ReasonUndecodable, w.letters.got[0].Reason)
		require.NotContains(t, w.letters.got[0].Error, "secret")

		p, _ = w.batches(handler(func(n int) error {
			if n > 1 {
				return errNoStock
			}
			return nil
		}))
		ds = p.ProcessBatch(t.Context(), messages("b"), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack letter dead", "ack claimed"}, summary(ds), "a plain error splits")

		p, _ = w.batches(handler(func(n int) error { return &consumer.BatchError{Errs: []error{nil, consumer.Permanent(errNoStock)}[:n]} }))
		ds = p.ProcessBatch(t.Context(), messages("c"), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack letter dead", "ack letter dead"}, summary(ds), "entries keep their message")
	})
}

func TestBatchError_CountsAndTellsTheFirst(t *testing.T) {
	e := &consumer.BatchError{Errs: []error{nil, errNoStock, errors.New("x")}}
	require.EqualError(t, e, "consumer: 2 of 3 messages failed, the first: no stock")
	require.ErrorIs(t, e, errNoStock)
	require.EqualError(t, &consumer.BatchError{Errs: make([]error, 2)}, "consumer: none of 2 messages failed")
}

// Random batches with failures, duplicates and several processes: whatever happens, each id is applied once or is a letter.
func TestProcessBatch_RandomTraffic_AppliesEachOnceOrLettersIt(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, dedupe.Logged)
			rnd, pick := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))
			var mu sync.Mutex
			chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) == 0 }
			handler := func(_ context.Context, ms []*consumer.Message) error {
				if chance(4) {
					return errNoStock
				}
				if slices.ContainsFunc(ms, func(m *consumer.Message) bool { return m.ID() == "7" }) {
					panic("poison")
				}
				w.apply(ms...)
				return nil
			}
			var all sync.WaitGroup
			for range 3 {
				p, _ := w.batches(handler, func(c *consumer.Config) { c.Batch.Max = 5; c.Policy.Order = consumer.OrderNone })
				var ms []*consumer.Message
				for range 40 {
					ms = append(ms, order(fmt.Sprint(pick.IntN(15))))
				}
				all.Go(func() {
					for len(ms) > 0 {
						var again []*consumer.Message
						for i, d := range p.ProcessBatch(t.Context(), ms, &w.letters) {
							require.NotEqual(t, consumer.Halt, d.Action, "%v", d.Err)
							if d.Action == consumer.Again {
								again = append(again, ms[i])
							}
						}
						ms = again
						time.Sleep(time.Second)
					}
				})
			}
			all.Wait()
			dead := map[string]bool{}
			for _, l := range w.letters.got {
				dead[l.ID] = true
			}
			require.True(t, dead["7"] || w.state("7").State == dedupe.StateAbsent)
			for i := range 15 {
				id := fmt.Sprint(i)
				if w.state(id).State != dedupe.StateAbsent {
					require.Equal(t, !dead[id], w.applied(id) == 1, "%s: applied %d, dead %v", id, w.applied(id), dead[id])
				}
			}
		})
	}
}

// PROTOCOL 6: each message of a batch has its own claim, and its row commits with the effect of the whole batch.
func TestProcessBatch_Transactional_OneTransactionAndARowForEach(t *testing.T) {
	inModes(t, []dedupe.Mode{dedupe.Transactional}, func(t *testing.T, w *world) {
		commit := true
		p, ran := w.batches(func(ctx context.Context, ms []*consumer.Message) error {
			_, one := dedupe.ClaimFrom(ctx)
			require.Equal(t, len(ms) == 1, one, "a claim in the context would be ambiguous")
			tx := w.db.Begin()
			for _, m := range ms {
				if err := w.db.Record(tx, m.Claim()); err != nil {
					return err
				}
				n, _ := tx.Get(m.ID()).(int)
				tx.Set(m.ID(), n+1)
				if m.ID() == "bad" {
					return errNoStock
				}
			}
			if !commit {
				return nil
			}
			return tx.Commit()
		}, func(c *consumer.Config) { c.Policy.Retry.Attempts = 1 })
		ds := p.ProcessBatch(t.Context(), ordersOf("a", "b", "a", "bad", "c"), &w.letters)
		require.Equal(t, []string{"ack claimed", "ack claimed", "ack done", "ack letter dead", "ack claimed"}, summary(ds))
		require.Equal(t, [][]string{{"a", "b", "bad", "c"}, {"a", "b"}, {"bad", "c"}, {"bad"}, {"c"}}, ran())
		for _, id := range []string{"a", "b", "c"} {
			require.Equal(t, 1, w.applied(id))
		}
		require.Zero(t, w.applied("bad"))

		commit = false
		ds = p.ProcessBatch(t.Context(), ordersOf("x", "y"), &w.letters)
		require.Equal(t, []string{"ack letter dead", "ack letter dead"}, summary(ds), "what was not committed is not done")
		require.Zero(t, w.applied("x"))
	})
}

// An earlier message that has to run alone holds back those of its key.
func TestProcessBatch_KillerInOrder_RunsBeforeTheLaterOnesOfItsKey(t *testing.T) {
	inModes(t, claimModes, func(t *testing.T, w *world) {
		for range 2 {
			_, err := w.guard().Claim(t.Context(), dedupe.Delivery{ID: "k1", Namespace: "orders", Fingerprint: dedupe.FingerprintOf(order("k1").Value)})
			require.NoError(t, err)
			time.Sleep(lease + time.Second)
		}
		p, ran := w.batches(func(_ context.Context, ms []*consumer.Message) error {
			if len(ms) > 1 {
				return errNoStock
			}
			return nil
		}, func(c *consumer.Config) { c.Batch.Max = 3 })
		ms := append(keyed("k", ordersOf("k1")...), append(keyed("x", ordersOf("x1")...), keyed("k", ordersOf("k2")...)...)...)
		ds := p.ProcessBatch(t.Context(), ms, &w.letters)
		require.Equal(t, []string{"ack claimed", "ack claimed", "ack claimed"}, summary(ds))
		var flat []string
		for _, r := range ran() {
			if len(r) == 1 {
				flat = append(flat, r[0])
			}
		}
		require.Less(t, slices.Index(flat, "k1"), slices.Index(flat, "k2"))
	})
}
