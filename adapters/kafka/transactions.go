package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

// record is one record that a handler may see. Its bytes are a copy: nothing of kafka-go's buffers stays behind in it.
type record struct {
	offset     int64
	time       time.Time
	key, value []byte
	headers    []protocol.Header
}

// committed appends to dst what a reader at offset from may see of a fetch response with read-committed isolation: no control records, no
// records of aborted transactions (the broker delivers both, and leaves it to the reader to drop them), nothing before from. next is where
// to fetch next.
//
// The broker lists aborted transactions in the order of their end, not of their beginning, and a batch says nothing of its own fate. So at
// every batch, control batches too, each entry of the list whose transaction has begun by then is taken into the set of aborted
// producers; a producer leaves the set at its abort marker, after which it may commit.
func committed(dst []record, p *fetchapi.ResponsePartition, from int64) (recs []record, next int64, err error) {
	recs, next = dst, from
	aborted := map[int64]bool{}
	pending := append([]fetchapi.ResponseTransaction(nil), p.AbortedTransactions...)
	begin := func(base int64) {
		kept := pending[:0]
		for _, t := range pending {
			if t.FirstOffset <= base {
				aborted[t.ProducerID] = true
			} else {
				kept = append(kept, t)
			}
		}
		pending = kept
	}
	seen := func(base int64) { next = max(next, base+1, from+1) } // trap 9: an empty batch does not say where it ends

	for _, b := range batches(p.RecordSet.Records) {
		var drop bool
		switch b := b.(type) {
		case *protocol.ControlBatch:
			begin(b.BaseOffset)
			seen(b.BaseOffset)
			last, abort, err := readMarkers(b)
			if err != nil {
				return recs, next, err
			}
			if abort {
				delete(aborted, b.ProducerID)
			}
			next = max(next, last+1)
			continue
		case *protocol.RecordBatch:
			begin(b.BaseOffset)
			seen(b.BaseOffset)
			drop = b.Attributes.Transactional() && aborted[b.ProducerID]
		case *protocol.MessageSet:
			seen(b.BaseOffset)
		}
		var last int64
		recs, last, err = appendRecords(recs, b, from, drop)
		if err != nil {
			return recs, next, err
		}
		next = max(next, last+1)
	}
	return recs, next, nil
}

func batches(r protocol.RecordReader) []protocol.RecordReader {
	switch r := r.(type) {
	case nil:
		return nil
	case *protocol.RecordStream:
		return r.Records
	default:
		return []protocol.RecordReader{r}
	}
}

// appendRecords reads b to its end, whatever is done with its records: kafka-go's pages go back to their pool only when each key and value
// was closed.
func appendRecords(dst []record, b protocol.RecordReader, from int64, drop bool) (recs []record, last int64, err error) {
	recs, last = dst, -1
	for {
		r, rerr := b.ReadRecord()
		if errors.Is(rerr, io.EOF) {
			return recs, last, err
		}
		if rerr != nil {
			return recs, last, errors.Join(err, fmt.Errorf("read record after offset %d: %w", last, rerr))
		}
		last = max(last, r.Offset)
		if drop || r.Offset < from || err != nil {
			closeRecord(r)
			continue
		}
		var rec record
		if rec, err = copyRecord(r); err == nil {
			recs = append(recs, rec)
		}
	}
}

// copyRecord takes key and value in one allocation and closes them.
func copyRecord(r *protocol.Record) (record, error) {
	defer closeRecord(r)
	rec := record{offset: r.Offset, time: r.Time, headers: r.Headers}
	var nk, nv int
	if r.Key != nil {
		nk = r.Key.Len()
	}
	if r.Value != nil {
		nv = r.Value.Len()
	}
	buf := make([]byte, nk+nv)
	if r.Key != nil {
		rec.key = buf[:nk:nk]
		if _, err := io.ReadFull(r.Key, rec.key); err != nil {
			return record{}, fmt.Errorf("read key of offset %d: %w", r.Offset, err)
		}
	}
	if r.Value != nil {
		rec.value = buf[nk:]
		if _, err := io.ReadFull(r.Value, rec.value); err != nil {
			return record{}, fmt.Errorf("read value of offset %d: %w", r.Offset, err)
		}
	}
	return rec, nil
}

func closeRecord(r *protocol.Record) {
	if r.Key != nil {
		r.Key.Close() //nolint:errcheck // gives pages back; cannot fail
	}
	if r.Value != nil {
		r.Value.Close() //nolint:errcheck
	}
}

// readMarkers reads a control batch: the last offset in it, and whether it ends an aborted transaction.
func readMarkers(b *protocol.ControlBatch) (last int64, abort bool, err error) {
	last = -1
	for {
		r, rerr := b.ReadRecord()
		if errors.Is(rerr, io.EOF) {
			return last, abort, err
		}
		if rerr != nil {
			return last, abort, errors.Join(err, fmt.Errorf("read control record after offset %d: %w", last, rerr))
		}
		last = max(last, r.Offset)
		rec, cerr := copyRecord(r)
		if cerr != nil {
			err = errors.Join(err, cerr)
			continue
		}
		const abortType = 0 // key: version int16, type int16; 0 aborts, 1 commits, others are none of our business
		if len(rec.key) >= 4 && binary.BigEndian.Uint16(rec.key[2:]) == abortType {
			abort = true
		}
	}
}
