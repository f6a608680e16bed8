package memstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

func newGuard(t *testing.T, l dedupe.Log, mode dedupe.Mode) *dedupe.Guard {
	t.Helper()
	g, err := dedupe.New(dedupe.Config{Scope: "inventory", Mode: mode, Log: l})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

func delivery(id string) dedupe.Delivery {
	return dedupe.Delivery{ID: id, Namespace: "orders", Fingerprint: dedupe.NoFingerprint}
}

// order is a message of which a handler takes one from the stock.
type order struct{ claim *dedupe.Claim }

func (o order) Claim() *dedupe.Claim { return o.claim }

func takeOne(tx *memstore.Tx) {
	n, _ := tx.Get("stock").(int)
	tx.Set("stock", n-1)
}

func TestTransactional_ADuplicate_TakesNoEffectAgain(t *testing.T) {
	l := memstore.NewLog()
	g := newGuard(t, l, dedupe.Transactional)
	handle := memstore.Transactional(l, func(_ context.Context, tx *memstore.Tx, o order) error {
		takeOne(tx)
		return o.Claim().SetResult([]byte("taken"))
	})
	for _, want := range []dedupe.Verdict{dedupe.Claimed, dedupe.Done, dedupe.Done} {
		out, err := g.Do(t.Context(), delivery("1"), func(ctx context.Context, c *dedupe.Claim) error { return handle(ctx, order{c}) })
		require.NoError(t, err)
		require.Equal(t, want, out.Verdict)
	}
	require.Equal(t, -1, l.Value("stock"))
	k, err := g.Key("orders", "1")
	require.NoError(t, err)
	recs, err := l.Inspect(t.Context(), []dedupe.Key{k})
	require.NoError(t, err)
	require.Equal(t, "taken", string(recs[0].Result))
}

func TestInTx_TheHandlerFails_LeavesNeitherRowNorEffect(t *testing.T) {
	l := memstore.NewLog()
	g := newGuard(t, l, dedupe.Transactional)
	boom := errors.New("boom")
	fails := func(ctx context.Context, _ *dedupe.Claim) error {
		return l.InTx(ctx, func(tx *memstore.Tx) error { takeOne(tx); return boom })
	}
	works := func(ctx context.Context, _ *dedupe.Claim) error {
		return l.InTx(ctx, func(tx *memstore.Tx) error { takeOne(tx); return nil })
	}
	_, err := g.Do(t.Context(), delivery("1"), fails)
	require.ErrorIs(t, err, boom)
	require.Nil(t, l.Value("stock"))
	out, err := g.Do(t.Context(), delivery("1"), works)
	require.NoError(t, err)
	require.Equal(t, dedupe.Claimed, out.Verdict)
	require.Equal(t, -1, l.Value("stock"))
}

func TestInTx_ManyMessagesAndTheirDuplicatesAtTheSameTime_LoseNoUpdateAndApplyNoneTwice(t *testing.T) {
	l := memstore.NewLog()
	g := newGuard(t, l, dedupe.Transactional)
	var wg sync.WaitGroup
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		for range 3 {
			wg.Go(func() {
				_, err := g.Do(t.Context(), delivery(id), func(ctx context.Context, _ *dedupe.Claim) error {
					return l.InTx(ctx, func(tx *memstore.Tx) error { takeOne(tx); return nil })
				})
				if err != nil {
					t.Errorf("order %s: %v", id, err)
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, -8, l.Value("stock"))
}

func TestRecord_InATransactionThatIsNotCommitted_IsNotApplied(t *testing.T) {
	l := memstore.NewLog()
	g := newGuard(t, l, dedupe.Transactional)
	_, err := g.Do(t.Context(), delivery("1"), func(_ context.Context, c *dedupe.Claim) error {
		tx := l.Begin()
		takeOne(tx)
		return l.Record(tx, c)
	})
	require.ErrorIs(t, err, dedupe.ErrNotApplied)
	out, err := g.Do(t.Context(), delivery("1"), func(_ context.Context, c *dedupe.Claim) error {
		tx := l.Begin()
		takeOne(tx)
		if err := l.Record(tx, c); err != nil {
			return err
		}
		return tx.Commit()
	})
	require.NoError(t, err)
	require.Equal(t, dedupe.Claimed, out.Verdict)
	require.Equal(t, -1, l.Value("stock"))
}

func TestCommit_ARowThatIsAnothersByNow_RollsEverythingBack(t *testing.T) {
	l := memstore.NewLog()
	g := newGuard(t, l, dedupe.Transactional)
	claimOf := func() *dedupe.Claim {
		out, err := g.Claim(t.Context(), delivery("1"))
		require.NoError(t, err)
		require.Equal(t, dedupe.Claimed, out.Verdict)
		return out.Claim
	}
	first, second := claimOf(), claimOf() // without Redis nothing keeps a duplicate from starting
	tx1, tx2 := l.Begin(), l.Begin()
	require.NoError(t, l.Record(tx1, first))
	require.NoError(t, l.Record(tx2, second))
	tx1.Set("by", "first")
	tx2.Set("by", "second")
	require.NoError(t, tx1.Commit())
	require.ErrorIs(t, tx2.Commit(), dedupe.ErrDuplicate)
	require.Equal(t, "first", l.Value("by"))
	require.Error(t, tx1.Commit(), "a transaction ends once")
	outs, errs := g.Complete(t.Context(), first, second)
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, dedupe.Claimed, outs[0].Verdict)
	require.Equal(t, dedupe.Done, outs[1].Verdict)
}

func TestCommit_WhatWasReadHasChanged_IsRefused(t *testing.T) {
	l := memstore.NewLog()
	tx1, tx2 := l.Begin(), l.Begin()
	takeOne(tx1)
	takeOne(tx2)
	require.Equal(t, -1, tx1.Get("stock"), "a transaction sees its own changes")
	require.Nil(t, l.Value("stock"), "nobody else does")
	require.NoError(t, tx1.Commit())
	require.ErrorIs(t, tx2.Commit(), dedupe.ErrUnavailable, "it is safe to run again, and no failure of the handler")
	require.Equal(t, -1, l.Value("stock"))
}

func TestCommit_TheLogWasRestoredMeanwhile_IsRefused(t *testing.T) {
	l := memstore.NewLog()
	set := func(v int) {
		tx := l.Begin()
		tx.Set("stock", v)
		require.NoError(t, tx.Commit())
	}
	set(1)
	backup := l.Snapshot()
	set(2)
	tx := l.Begin()
	takeOne(tx) // reads 2
	l.RestoreFrom(backup)
	set(7) // as many commits as before
	require.ErrorIs(t, tx.Commit(), dedupe.ErrUnavailable)
	require.Equal(t, 7, l.Value("stock"))
}

func TestInTx_OutsideOfAHandler_IsErrNoClaim(t *testing.T) {
	l := memstore.NewLog()
	run := func(*memstore.Tx) error { t.Error("it ran"); return nil }
	require.ErrorIs(t, l.InTx(t.Context(), run), dedupe.ErrNoClaim)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.InTx(ctx, run), dedupe.ErrNoClaim)
}

func TestInTx_InAnotherLogOrMode_WritesNothing(t *testing.T) {
	l, other := memstore.NewLog(), memstore.NewLog()
	write := func(in *memstore.Log) func(ctx context.Context, _ *dedupe.Claim) error {
		return func(ctx context.Context, _ *dedupe.Claim) error {
			return in.InTx(ctx, func(tx *memstore.Tx) error { takeOne(tx); return nil })
		}
	}
	_, err := newGuard(t, l, dedupe.Transactional).Do(t.Context(), delivery("1"), write(other))
	require.ErrorIs(t, err, dedupe.ErrNotRecorded)
	require.Nil(t, other.Value("stock"))
	_, err = newGuard(t, other, dedupe.Logged).Do(t.Context(), delivery("1"), write(other))
	require.ErrorIs(t, err, dedupe.ErrWrongMode)
	require.Nil(t, other.Value("stock"))
}

func TestInTx_TheContextHasEnded_RunsNothing(t *testing.T) {
	l := memstore.NewLog()
	g := newGuard(t, l, dedupe.Transactional)
	_, err := g.Do(t.Context(), delivery("1"), func(ctx context.Context, _ *dedupe.Claim) error {
		ctx, cancel := context.WithTimeout(ctx, time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		return l.InTx(ctx, func(*memstore.Tx) error { t.Error("it ran"); return nil })
	})
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
}

func TestRecord_InASecondTransactionAfterTheFirstCommitted_IsADuplicate(t *testing.T) {
	l := memstore.NewLog()
	g := newGuard(t, l, dedupe.Transactional)
	out, err := g.Claim(t.Context(), delivery("1"))
	require.NoError(t, err)
	tx := l.Begin()
	require.NoError(t, l.Record(tx, out.Claim))
	takeOne(tx)
	require.NoError(t, tx.Commit())
	again := l.Begin()
	require.ErrorIs(t, l.Record(again, out.Claim), dedupe.ErrDuplicate, "one claim, one effect")
	require.Equal(t, -1, l.Value("stock"))
	_, errs := g.Complete(t.Context(), out.Claim)
	require.NoError(t, errs[0])
}
