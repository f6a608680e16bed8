package kafka

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/stretchr/testify/require"
)

// history is a partition as a broker has it: batches in order, and how each transaction ended.
type history struct {
	batches []batch
	aborted []ended // in the order of their end
	want    []int64 // offsets that a read-committed reader sees
	end     int64
}

type batch struct {
	base, last int64
	producer   int64
	kind       string // "plain", "data", "abort", "commit"
	offsets    []int64
}

type ended struct{ producer, first, marker int64 }

// randomHistory has up to 4 transactional producers and one that is not, with holes at the ends of batches as compaction leaves them.
func randomHistory(r *rand.Rand) *history {
	h := &history{}
	open := map[int64][]batch{}
	for range 40 {
		p := r.Int64N(5)
		b := batch{base: h.end, producer: p, kind: "data"}
		if p > 0 && len(open[p]) > 0 && r.IntN(3) == 0 {
			b.kind = []string{"abort", "commit"}[r.IntN(2)]
			b.offsets = []int64{h.end}
			if b.kind == "abort" {
				h.aborted = append(h.aborted, ended{p, open[p][0].base, h.end})
			} else {
				for _, x := range open[p] {
					h.want = append(h.want, x.offsets...)
				}
			}
			delete(open, p)
		} else {
			for i := range 1 + r.Int64N(4) {
				b.offsets = append(b.offsets, h.end+i)
			}
			if p == 0 {
				b.kind = "plain"
				h.want = append(h.want, b.offsets...)
			} else {
				open[p] = append(open[p], b)
			}
		}
		b.last = b.offsets[len(b.offsets)-1] + r.Int64N(3)
		h.end = b.last + 1
		h.batches = append(h.batches, b)
	}
	for p, bs := range open { // the last stable offset would stop before them: all ends are known here
		h.aborted = append(h.aborted, ended{p, bs[0].base, h.end})
		h.batches = append(h.batches, batch{base: h.end, last: h.end, producer: p, kind: "abort", offsets: []int64{h.end}})
		h.end++
	}
	return h
}

// fetch answers as a broker: whole batches from the one that holds offset on, at most n, and the aborted transactions that touch them.
func (h *history) fetch(offset int64, n int) *fetchapi.ResponsePartition {
	var l log
	p := &fetchapi.ResponsePartition{}
	first, last := int64(-1), int64(-1)
	for _, b := range h.batches {
		if b.last < offset || n == 0 {
			continue
		}
		n--
		if first < 0 {
			first = b.base
		}
		last = b.last
		switch b.kind {
		case "abort", "commit":
			l.marker(b.producer, b.base, b.kind == "commit")
		default:
			l.batch(b.producer, b.kind == "data", b.base, b.offsets...)
		}
	}
	for _, a := range h.aborted {
		if a.first <= last && a.marker >= offset {
			p.AbortedTransactions = append(p.AbortedTransactions, fetchapi.ResponseTransaction{ProducerID: a.producer, FirstOffset: a.first})
		}
	}
	p.RecordSet = protocol.RecordSet{Records: &protocol.RecordStream{Records: l.batches}}
	return p
}

func TestTrap06_RandomHistories_AreReadAsAPlainListWouldBe(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		h := randomHistory(r)
		want := map[int64]bool{}
		for _, o := range h.want {
			want[o] = true
		}
		got := map[int64]bool{}
		for offset := int64(0); offset < h.end; {
			recs, next, err := committed(nil, h.fetch(offset, 1+r.IntN(4)), offset)
			require.NoError(t, err)
			require.Greater(t, next, offset, "seed %d", seed)
			for _, rec := range recs {
				require.False(t, got[rec.offset], "seed %d: offset %d twice", seed, rec.offset)
				require.GreaterOrEqual(t, rec.offset, offset)
				got[rec.offset] = true
			}
			offset = next
		}
		require.Equal(t, want, got, fmt.Sprint("seed ", seed))
	}
}
