package lanes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/lanes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func settle(n int) []lanes.Result {
	out := make([]lanes.Result, n)
	for i := range out {
		out[i].Action = lanes.Settle
	}
	return out
}

// each makes a Run of a function for one item.
func each(f func(ctx context.Context, v string) lanes.Result) func(context.Context, []string) []lanes.Result {
	return func(ctx context.Context, vs []string) []lanes.Result {
		out := make([]lanes.Result, len(vs))
		for i, v := range vs {
			out[i] = f(ctx, v)
		}
		return out
	}
}

// pass lets d go by and waits until nothing moves any more.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func commit[T any](q *lanes.Partition[T]) int64 {
	n, ok := q.Commit()
	if !ok {
		return -1
	}
	return n
}

func TestLanes_OneKey_RunsInOrderAndOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := map[string][]int{}
		busy := map[string]bool{}
		q := lanes.NewPartition(t.Context(), lanes.NewPool(4), lanes.Config[string]{Run: each(func(_ context.Context, v string) lanes.Result {
			var key string
			var n int
			fmt.Sscanf(v, "%s %d", &key, &n)
			mu.Lock()
			clash := busy[key]
			busy[key] = true
			mu.Unlock()
			time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			require.False(t, clash, "two messages of a key at once")
			busy[key] = false
			seen[key] = append(seen[key], n)
			return lanes.Result{Action: lanes.Settle}
		})})
		for i := range 300 {
			key := fmt.Sprintf("k%d", i%7)
			require.True(t, q.Deliver(int64(i), []byte(key), fmt.Sprintf("%s %d", key, i)))
		}
		pass(time.Minute)
		require.Len(t, seen, 7)
		for _, ns := range seen {
			require.IsIncreasing(t, ns)
		}
		require.EqualValues(t, 300, commit(q))
		require.NoError(t, q.Drain(t.Context(), time.Second))
	})
}

func TestLanes_NeverMoreAtOnceThanThePoolAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		pool := lanes.NewPool(3)
		run := each(func(context.Context, string) lanes.Result {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return lanes.Result{Action: lanes.Settle}
		})
		a := lanes.NewPartition(t.Context(), pool, lanes.Config[string]{Run: run})
		b := lanes.NewPartition(t.Context(), pool, lanes.Config[string]{Run: run, Unordered: true})
		for i := range 9 {
			a.Deliver(int64(i), nil, "")
			b.Deliver(int64(i), []byte("same"), "")
		}
		start := time.Now()
		synctest.Wait()
		pass(6*time.Second + time.Millisecond)
		require.EqualValues(t, 9, commit(a))
		require.EqualValues(t, 9, commit(b))
		require.EqualValues(t, 3, most.Load())
		require.Less(t, time.Since(start), 7*time.Second)
	})
}

func TestLanes_Retry_KeepsOrderOfItsKeyAndHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		fails := 2
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: each(func(_ context.Context, v string) lanes.Result {
			order = append(order, v)
			if v == "a1" && fails > 0 {
				fails--
				return lanes.Result{After: time.Second}
			}
			return lanes.Result{Action: lanes.Settle}
		})})
		q.Deliver(0, []byte("a"), "a1")
		q.Deliver(1, []byte("a"), "a2")
		q.Deliver(2, []byte("b"), "b1")
		synctest.Wait()
		require.Equal(t, []string{"a1", "b1"}, order)
		require.EqualValues(t, 0, commit(q), "the failed message holds the watermark")
		pass(3 * time.Second)
		require.Equal(t, []string{"a1", "b1", "a1", "a1", "a2"}, order)
		require.EqualValues(t, 3, commit(q))
		waiting, running := q.Load()
		require.Zero(t, waiting+running)
	})
}

func TestLanes_NoAnswer_MeansRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: func(_ context.Context, vs []string) []lanes.Result {
			if runs++; runs < 3 {
				return nil
			}
			return settle(len(vs))
		}})
		q.Deliver(5, nil, "x")
		synctest.Wait()
		require.Equal(t, 3, runs)
		require.EqualValues(t, 6, commit(q))
	})
}

func TestLanes_HoldAndBlock_StopTheirKeyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := map[string]bool{}
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: each(func(_ context.Context, v string) lanes.Result {
			ran[v] = true
			switch v {
			case "held":
				return lanes.Result{Action: lanes.Hold}
			case "blocks":
				return lanes.Result{Action: lanes.Settle, Block: true}
			}
			return lanes.Result{Action: lanes.Settle}
		})})
		q.Deliver(0, []byte("b"), "blocks")
		q.Deliver(1, []byte("a"), "held")
		q.Deliver(2, []byte("a"), "behind held")
		q.Deliver(3, []byte("b"), "behind blocks")
		q.Deliver(4, []byte("c"), "other")
		synctest.Wait()
		require.Equal(t, map[string]bool{"held": true, "blocks": true, "other": true}, ran)
		require.EqualValues(t, 1, commit(q))
		q.Deliver(5, []byte("b"), "later")
		synctest.Wait()
		require.False(t, ran["later"])
		require.NoError(t, q.Drain(t.Context(), time.Second))
		require.EqualValues(t, 1, commit(q), "the end of the partition settles nothing")
	})
}

// PROTOCOL 6: bound what may be done ahead of a held watermark (count, and age), then stop fetching.
func TestLanes_WorkAheadOfAHeldWatermark_IsBoundedByCountAndAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := false
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{MaxAhead: 3, MaxAge: time.Hour, Run: each(func(_ context.Context, v string) lanes.Result {
			if v == "stuck" && !release {
				return lanes.Result{After: time.Minute}
			}
			return lanes.Result{Action: lanes.Settle}
		})})
		q.Deliver(0, nil, "stuck")
		q.Deliver(1, nil, "")
		synctest.Wait()
		require.True(t, q.Room())
		q.Deliver(2, nil, "")
		synctest.Wait()
		require.False(t, q.Room(), "three offsets lie at or after the watermark")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.WaitRoom(ctx), context.DeadlineExceeded)
		release = true
		require.NoError(t, q.WaitRoom(t.Context()), "room comes back when the watermark moves")
		release = false
		q.Deliver(3, nil, "stuck")
		synctest.Wait()
		require.True(t, q.Room())
		pass(time.Hour + time.Second)
		require.False(t, q.Room(), "held for longer than MaxAge")
		q.Stop()
		require.ErrorIs(t, q.WaitRoom(t.Context()), lanes.ErrStopped)
	})
}

func TestLanes_Pause_StartsNothingAndResumeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := lanes.NewPool(2)
		runs := 0
		q := lanes.NewPartition(t.Context(), pool, lanes.Config[string]{Run: func(_ context.Context, vs []string) []lanes.Result { runs++; return settle(len(vs)) }})
		pool.Pause()
		q.Deliver(0, nil, "")
		pass(time.Hour)
		require.Zero(t, runs)
		require.False(t, q.Room())
		got := make(chan error)
		go func() { got <- q.WaitRoom(t.Context()) }()
		synctest.Wait()
		pool.Resume()
		require.NoError(t, <-got)
		synctest.Wait()
		require.Equal(t, 1, runs)
	})
}

// PROTOCOL 6: work that was not started is not claimed and not settled on revoke; work in flight ends first.
func TestLanes_Drain_EndsWorkInFlightAndDropsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran []string
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: each(func(ctx context.Context, v string) lanes.Result {
			ran = append(ran, v)
			time.Sleep(time.Second)
			return lanes.Result{Action: lanes.Settle}
		})})
		for i := range 5 {
			q.Deliver(int64(i), []byte("k"), fmt.Sprint(i))
		}
		pass(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, q.Drain(ctx, time.Second))
		require.Equal(t, []string{"0", "1"}, ran)
		require.EqualValues(t, 2, commit(q))
		require.False(t, q.Deliver(5, nil, ""), "a stopped partition takes nothing")
		require.NoError(t, q.Drain(ctx, time.Second), "again")
	})
}

// PROTOCOL 6: work that was not started is not settled on revoke. The one who fetches may be at it still when the partition stops.
func TestLanes_SkipAfterStop_DoesNotPassWhatWasDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: func(_ context.Context, vs []string) []lanes.Result { return settle(len(vs)) }})
		q.Skip(3)
		require.True(t, q.Deliver(3, nil, ""))
		synctest.Wait()
		q.Stop()
		require.False(t, q.Deliver(4, nil, ""))
		q.Skip(10)
		require.EqualValues(t, 4, commit(q))
	})
}

func TestLanes_Drain_TellsThePipelineAtOnceAndCancelsAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cause error
		var took time.Duration
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: each(func(ctx context.Context, _ string) lanes.Result {
			start := time.Now()
			<-ctx.Done()
			cause, took = context.Cause(ctx), time.Since(start)
			return lanes.Result{}
		})})
		q.Deliver(0, nil, "")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		require.NoError(t, q.Drain(ctx, time.Second))
		require.ErrorIs(t, cause, consumer.ErrDraining)
		require.Equal(t, 20*time.Second, took)
		require.EqualValues(t, 0, commit(q))
	})
}

// DECISIONS 12: a handler that never returns: ErrDrainTimeout.
func TestLanes_Drain_HandlerThatDoesNotReturn_IsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: each(func(context.Context, string) lanes.Result { <-hung; return lanes.Result{} })})
		q.Deliver(42, nil, "")
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := q.Drain(ctx, time.Second)
		require.ErrorIs(t, err, consumer.ErrDrainTimeout)
		require.ErrorContains(t, err, "42")
		close(hung)
		require.NoError(t, q.Wait(t.Context()))
	})
}

func TestLanes_Batch_TakesWhatIsThereUpToMaxAndWaitsForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		fail := true
		q := lanes.NewPartition(t.Context(), lanes.NewPool(4), lanes.Config[string]{BatchMax: 3, BatchWait: time.Second, Run: func(_ context.Context, vs []string) []lanes.Result {
			sizes = append(sizes, len(vs))
			out := settle(len(vs))
			if fail {
				fail = false
				out[1] = lanes.Result{After: time.Minute}
			}
			return out
		}})
		for i := range 4 {
			q.Deliver(int64(i), []byte{byte(i)}, "")
		}
		synctest.Wait()
		require.Equal(t, []int{3}, sizes, "a full batch does not wait")
		pass(59 * time.Second)
		require.Equal(t, []int{3}, sizes, "the failed one is at the front again")
		require.EqualValues(t, 1, commit(q))
		pass(2 * time.Second)
		require.Equal(t, []int{3, 2}, sizes)
		q.Deliver(4, nil, "")
		synctest.Wait()
		require.Len(t, sizes, 2, "one alone waits for more")
		pass(time.Second)
		require.Equal(t, []int{3, 2, 1}, sizes)
		require.EqualValues(t, 5, commit(q))
	})
}

func TestLanes_OffsetDeliveredTwice_IsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: func(_ context.Context, vs []string) []lanes.Result { runs++; return settle(len(vs)) }})
		require.True(t, q.Deliver(7, nil, ""))
		require.False(t, q.Deliver(7, nil, ""))
		require.False(t, q.Deliver(3, nil, ""))
		synctest.Wait()
		require.Equal(t, 1, runs)
	})
}

func TestLanes_Ended_TellsThatTheWatermarkMayHaveMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := lanes.NewPartition(t.Context(), lanes.NewPool(1), lanes.Config[string]{Run: func(_ context.Context, vs []string) []lanes.Result {
			time.Sleep(time.Second)
			return settle(len(vs))
		}})
		q.Deliver(0, nil, "")
		ended := q.Ended()
		require.EqualValues(t, 0, commit(q))
		<-ended
		require.EqualValues(t, 1, commit(q))
	})
}

// Random settling against a plain set: the watermark is the smallest delivered offset that is not settled.
func TestWatermark_IsTheSmallestUnsettledOffset_LikeAPlainSet(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var w lanes.Watermark
		_, ok := w.Commit()
		require.False(t, ok)
		open := map[int64]bool{}
		next := int64(rnd.IntN(100))
		for range 4000 {
			if rnd.IntN(2) == 0 {
				next += int64(rnd.IntN(3)) // holes
				require.True(t, w.Deliver(next, time.Now()))
				open[next] = true
				next++
			} else {
				for o := range open {
					require.True(t, w.Settle(o))
					require.False(t, w.Settle(o))
					delete(open, o)
					break
				}
			}
			want := next
			for o := range open {
				want = min(want, o)
			}
			if got, ok := w.Commit(); ok {
				require.Equal(t, want, got)
			}
			_, held := w.Oldest()
			require.Equal(t, len(open) > 0, held)
		}
	}
}

func TestWatermark_Skip_PassesWhatIsNotThere(t *testing.T) {
	var w lanes.Watermark
	w.Skip(10)
	n, ok := w.Commit()
	require.True(t, ok)
	require.EqualValues(t, 10, n)
	require.True(t, w.Deliver(12, time.Now()))
	w.Skip(20)
	n, _ = w.Commit()
	require.EqualValues(t, 12, n)
	require.True(t, w.Settle(12))
	n, _ = w.Commit()
	require.EqualValues(t, 20, n)
	require.False(t, w.Settle(11))
}
