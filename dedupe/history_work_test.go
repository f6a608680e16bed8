package dedupe_test

import (
	"context"
	"errors"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
)

// work lets a handler of n go on.
func (h *history) work(n *node) {
	var idle []*work
	for _, w := range n.works {
		if !w.busy {
			idle = append(idle, w)
		}
	}
	if len(idle) == 0 {
		return
	}
	w := idle[h.rng.IntN(len(idle))]
	w.busy = true
	life := n.life
	over := h.run(n, w)
	w.busy = false
	if n.life != life {
		_ = w.stop()
		return
	}
	if over {
		_ = w.stop()
		h.drop(n, w)
	}
}

func (h *history) drop(n *node, w *work) {
	for i, x := range n.works {
		if x == w {
			n.works = append(n.works[:i:i], n.works[i+1:]...)
			return
		}
	}
}

// run is what a handler does next; over says that its delivery has ended.
func (h *history) run(n *node, w *work) (over bool) {
	x := h.rng.Float64()
	if h.calm.Load() {
		x = 0.9
	}
	switch {
	case w.wrote:
		return h.complete(n, w)
	case w.ctx.Err() != nil:
		h.note("%s: handler of %s is cancelled", n.name, w.name())
		return h.release(n, w, true)
	case x < 0.25:
		h.note("%s: handler of %s fails", n.name, w.name())
		w.m.failed++
		return h.failed(n, w, errHandler)
	case x < 0.30:
		h.note("%s: handler of %s is handed back", n.name, w.name())
		return h.release(n, w, true)
	case x < 0.33:
		h.note("%s: handler of %s meets something busy", n.name, w.name())
		return h.failed(n, w, &dedupe.BusyError{Key: w.claim.Key()})
	case x < 0.36:
		h.note("%s: handler of %s meets an outage", n.name, w.name())
		return h.failed(n, w, dedupe.ErrOutcomeUnknown)
	case h.mode == dedupe.Transactional:
		return h.transaction(n, w, x)
	}
	w.m.applied++
	w.wrote = true
	h.note("%s: EFFECT of %s", n.name, w.name())
	return h.maybe(0.7) && h.complete(n, w)
}

// transaction is the handler's, in the ways in which it can end.
func (h *history) transaction(n *node, w *work, x float64) (over bool) {
	add := func(tx *memstore.Tx) error {
		v, _ := tx.Get(w.m.id).(int)
		tx.Set(w.m.id, v+1)
		return nil
	}
	if x > 0.8 { // InTx
		err := h.db.InTx(w.ctx, add)
		h.note("%s: transaction of %s: %v", n.name, w.name(), err)
		switch {
		case err != nil && h.maybe(0.1):
			err = nil // swallowed
		case err == nil && h.maybe(0.1):
			w.m.failed++
			err = errHandler // after the commit
		}
		if err != nil {
			return h.failed(n, w, err)
		}
		w.wrote = true
		return h.maybe(0.7) && h.complete(n, w)
	}
	tx := h.db.Begin()
	if err := h.db.Record(tx, w.claim); err != nil {
		h.note("%s: record of %s: %v", n.name, w.name(), err)
		return h.failed(n, w, err)
	}
	_ = add(tx)
	switch {
	case x < 0.45: // cut off before or after the commit, or while the server still thinks about it
		w.claim.Note(dedupe.CommitUnknown)
		switch h.rng.IntN(3) {
		case 0:
			h.note("%s: commit of %s: reply lost, server says %v", n.name, w.name(), tx.Commit())
		case 1:
			h.note("%s: commit of %s: cut off, and open on the server", n.name, w.name())
			h.late = append(h.late, tx)
		default:
			h.note("%s: commit of %s: cut off, and rolled back", n.name, w.name())
		}
		if h.maybe(0.2) {
			w.wrote = true // swallowed
			return h.complete(n, w)
		}
		return h.failed(n, w, dedupe.ErrOutcomeUnknown)
	case x < 0.55:
		h.note("%s: handler of %s rolls back and fails", n.name, w.name())
		w.m.failed++
		return h.failed(n, w, errHandler)
	case x < 0.60:
		h.note("%s: handler of %s forgets to commit", n.name, w.name())
		return h.complete(n, w)
	case x < 0.65:
		w.claim.Note(dedupe.NotRecorded)
		w.claim.NoEffect()
		h.note("%s: nothing to do for %s", n.name, w.name())
		w.m.nothing[w.claim.Owner()] = true
		return h.complete(n, w)
	}
	err := tx.Commit()
	h.note("%s: own transaction of %s: %v", n.name, w.name(), err)
	if err != nil {
		return h.failed(n, w, err)
	}
	w.wrote = true
	return h.complete(n, w)
}

func (h *history) row(m *message) dedupe.Record {
	k, _ := dedupe.NewKey(scope, topic, m.id)
	return inspect(h.t, h.db, k)
}

func (h *history) complete(n *node, w *work) (over bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !h.calm.Load() && h.maybe(0.3) {
		cancel()
	}
	life := n.life
	outs, errs := n.guard.Complete(ctx, w.claim)
	h.note("%s: completion of %s: %v, %v", n.name, w.name(), outs[0].Verdict, errs[0])
	switch {
	case n.life != life:
		w.m.excuses++
		return true
	case errors.Is(errs[0], dedupe.ErrNotApplied):
		w.m.failed++
		return h.failed(n, w, errs[0])
	case errs[0] != nil:
		w.m.excuses++
		if !dedupe.IsOutage(errs[0]) && !errors.Is(errs[0], dedupe.ErrStale) {
			h.fail("%s: completion of %s: unexpected error %v", n.name, w.name(), errs[0])
		}
		if h.maybe(0.2) { // a caller that releases to be on the safe side
			h.release(n, w, true)
		}
		return true
	}
	h.settled(w, outs[0].Verdict)
	return true
}

func (h *history) failed(n *node, w *work, cause error) (over bool) {
	life := n.life
	out, failures, err := n.guard.Fail(context.Background(), w.claim, cause)
	h.note("%s: failure of %s: %v, %d failures, %v", n.name, w.name(), out.Verdict, failures, err)
	switch {
	case n.life != life:
		return true
	case err != nil:
		return h.release(n, w, true)
	case out.Verdict != dedupe.Claimed:
		h.settled(w, out.Verdict)
		return true
	}
	if failures > w.m.failed+h.lostReleases { // an unclaimed release that is repeated after another owner's counts again
		h.fail("%s: %d failures of %s are counted, and its handlers failed %d times", n.name, failures, w.name(), w.m.failed)
	}
	if failures < 3 && !h.maybe(0.2) {
		return h.release(n, w, false)
	}
	published := false
	v, err := n.guard.Bury(context.Background(), w.claim, "failed", func(context.Context) error {
		if !h.calm.Load() && h.maybe(0.1) {
			return errHandler
		}
		w.m.letters++
		published = true
		return nil
	})
	h.note("%s: burial of %s: %v, %v; letter: %v", n.name, w.name(), v, err, published)
	switch {
	case n.life != life:
		return true
	case err != nil:
		return h.release(n, w, true)
	case v == dedupe.Busy:
		v = dedupe.Dead
	}
	h.settled(w, v)
	return true
}

func (h *history) release(n *node, w *work, handBack bool) (over bool) {
	_, errs := n.guard.Release(context.Background(), dedupe.ReleaseReason{Cause: errHandler, HandBack: handBack}, w.claim)
	h.note("%s: release of %s: %v", n.name, w.name(), errs[0])
	return true
}
