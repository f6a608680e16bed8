package lanes

import (
	"slices"
	"time"
)

// Watermark knows up to where a partition is settled: an ordered list of the offsets that were delivered, so that holes left by
// compaction, transactions or filters are harmless. Not safe for concurrent use; a Partition guards its own.
type Watermark struct {
	open  []delivered // in the order of offsets; settled ones are dropped from the front
	head  int         // open[:head] is dropped already
	next  int64       // the first offset that was never delivered
	known bool
}

type delivered struct {
	offset  int64
	settled bool
	at      time.Time
}

// Deliver notes an offset that is now in work. Offsets grow; one that does not is refused with false: it was delivered already,
// and the caller must drop it.
func (w *Watermark) Deliver(offset int64, now time.Time) bool {
	if w.known && offset < w.next {
		return false
	}
	w.open = append(w.open, delivered{offset: offset, at: now})
	w.next, w.known = offset+1, true
	return true
}

// Skip says that no offset below next will be delivered any more: what lies there was filtered or does not exist.
func (w *Watermark) Skip(next int64) {
	if !w.known || next > w.next {
		w.next, w.known = next, true
	}
}

// Settle notes that offset needs no further delivery. False for one that is not in work.
func (w *Watermark) Settle(offset int64) bool {
	open := w.open[w.head:]
	i, found := slices.BinarySearchFunc(open, offset, func(d delivered, o int64) int { return int(min(max(d.offset-o, -1), 1)) })
	if !found || open[i].settled {
		return false
	}
	open[i].settled = true
	for w.head < len(w.open) && w.open[w.head].settled {
		w.head++
	}
	switch {
	case w.head == len(w.open):
		w.open, w.head = w.open[:0], 0
	case w.head > 1024 && w.head > len(w.open)/2:
		w.open = append(w.open[:0], w.open[w.head:]...)
		w.head = 0
	}
	return true
}

// Commit is the offset below which everything is settled: where the next owner of the partition begins. False before anything was
// delivered or skipped.
func (w *Watermark) Commit() (int64, bool) {
	if w.head < len(w.open) {
		return w.open[w.head].offset, true
	}
	return w.next, w.known
}

// Ahead is how many offsets, settled or not, lie at or after the watermark: what the next owner would be sent again.
func (w *Watermark) Ahead() int { return len(w.open) - w.head }

// Oldest is when the offset that holds the watermark was delivered. False when nothing holds it.
func (w *Watermark) Oldest() (time.Time, bool) {
	if w.head == len(w.open) {
		return time.Time{}, false
	}
	return w.open[w.head].at, true
}
