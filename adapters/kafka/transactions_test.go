package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idemq/idemq/internal/testenv"
)

// counted is a key or value that notes whether it was closed.
type counted struct {
	protocol.Bytes
	open *int
}

func (c *counted) Close() error {
	*c.open--
	return c.Bytes.Close()
}

// log builds a fetch response by hand.
type log struct {
	open    int // keys and values not closed
	batches []protocol.RecordReader
}

func (l *log) bytes(s string) protocol.Bytes {
	l.open++
	return &counted{protocol.NewBytes([]byte(s)), &l.open}
}

func (l *log) data(producer int64, transactional bool, offsets ...int64) *log {
	return l.batch(producer, transactional, offsets[0], offsets...)
}

func (l *log) batch(producer int64, transactional bool, base int64, offsets ...int64) *log {
	var rs []protocol.Record
	for _, o := range offsets {
		rs = append(rs, protocol.Record{Offset: o, Key: l.bytes("k"), Value: l.bytes(fmt.Sprint(o))})
	}
	b := &protocol.RecordBatch{ProducerID: producer, BaseOffset: base, Records: protocol.NewRecordReader(rs...)}
	if transactional {
		b.Attributes = protocol.Transactional
	}
	l.batches = append(l.batches, b)
	return l
}

func (l *log) marker(producer, offset int64, commit bool) *log {
	kind := "\x00\x00\x00\x00"
	if commit {
		kind = "\x00\x00\x00\x01"
	}
	rs := protocol.NewRecordReader(protocol.Record{Offset: offset, Key: l.bytes(kind), Value: l.bytes("\x00\x00\x00\x00\x00\x00")})
	l.batches = append(l.batches, &protocol.ControlBatch{ProducerID: producer, BaseOffset: offset, Attributes: protocol.Control | protocol.Transactional, Records: rs})
	return l
}

func (l *log) read(t *testing.T, from int64, aborted ...fetchapi.ResponseTransaction) (offsets []int64, next int64) {
	t.Helper()
	p := &fetchapi.ResponsePartition{AbortedTransactions: aborted, RecordSet: protocol.RecordSet{Records: &protocol.RecordStream{Records: l.batches}}}
	recs, next, err := committed(nil, p, from)
	require.NoError(t, err)
	require.Zero(t, l.open, "every key and value is closed")
	for _, r := range recs {
		require.Equal(t, fmt.Sprint(r.offset), string(r.value))
		offsets = append(offsets, r.offset)
	}
	return offsets, next
}

func abortedAt(producer, first int64) fetchapi.ResponseTransaction {
	return fetchapi.ResponseTransaction{ProducerID: producer, FirstOffset: first}
}

func TestTrap06_AbortMarker_EndsTheAbortAndTheNextTransactionIsDelivered(t *testing.T) {
	l := new(log).data(7, true, 0, 1).marker(7, 2, false).data(7, true, 3, 4).marker(7, 5, true)
	got, next := l.read(t, 0, abortedAt(7, 0))
	require.Equal(t, []int64{3, 4}, got)
	require.EqualValues(t, 6, next)
}

func TestTrap06_FetchThatBeginsAtAnAbortMarker_DoesNotDropTheNextTransaction(t *testing.T) {
	l := new(log).marker(7, 2, false).data(7, true, 3, 4).marker(7, 5, true)
	got, _ := l.read(t, 2, abortedAt(7, 0))
	require.Equal(t, []int64{3, 4}, got)
}

func TestTrap06_AbortedListInTheOrderOfTheirEnd_IsScannedWhole(t *testing.T) {
	l := new(log).data(1, true, 0).data(2, true, 1).marker(2, 2, false).data(1, true, 3).marker(1, 4, false)
	got, _ := l.read(t, 0, abortedAt(2, 1), abortedAt(1, 0)) // 2 began later and ended earlier
	require.Empty(t, got)
}

func TestTrap06_ProducerThatAbortsTwice_IsDroppedTwice(t *testing.T) {
	l := new(log).data(1, true, 0).marker(1, 1, false).data(1, true, 2).marker(1, 3, true).data(1, true, 4).marker(1, 5, false)
	got, _ := l.read(t, 0, abortedAt(1, 0), abortedAt(1, 4))
	require.Equal(t, []int64{2}, got)
}

func TestTrap06_RecordsOutsideOfTransactions_AreDeliveredBesideThem(t *testing.T) {
	l := new(log).data(-1, false, 0).data(1, true, 1).data(-1, false, 2).marker(1, 3, false)
	got, next := l.read(t, 0, abortedAt(1, 1))
	require.Equal(t, []int64{0, 2}, got)
	require.EqualValues(t, 4, next)
}

func TestTrap09_NextOffset(t *testing.T) {
	for name, c := range map[string]struct {
		log  *log
		from int64
		want []int64
		next int64
	}{
		"nothing":                            {new(log), 5, nil, 5},
		"an empty batch alone moves by one":  {new(log).batch(1, false, 5), 5, nil, 6},
		"an empty batch before another":      {new(log).batch(1, false, 5).data(1, false, 20), 5, []int64{20}, 21},
		"an empty batch after another":       {new(log).data(1, false, 5).batch(1, false, 10), 5, []int64{5}, 11},
		"records before the offset, skipped": {new(log).data(1, false, 3, 4, 5, 6), 5, []int64{5, 6}, 7},
		"a tail that compaction emptied":     {new(log).batch(1, false, 0, 0, 3), 4, nil, 5},
	} {
		t.Run(name, func(t *testing.T) {
			got, next := c.log.read(t, c.from)
			require.Equal(t, c.want, got)
			require.Equal(t, c.next, next)
		})
	}
}

func TestRecords_NullAndEmpty_StayApart(t *testing.T) {
	rs := protocol.NewRecordReader(protocol.Record{Offset: 1}, protocol.Record{Offset: 2, Key: protocol.NewBytes([]byte{}), Value: protocol.NewBytes([]byte{})})
	p := &fetchapi.ResponsePartition{RecordSet: protocol.RecordSet{Records: &protocol.RecordBatch{BaseOffset: 1, Records: rs}}}
	recs, _, err := committed(nil, p, 0)
	require.NoError(t, err)
	require.Nil(t, recs[0].key)
	require.Nil(t, recs[0].value)
	require.NotNil(t, recs[1].key, "an empty key is a key")
	require.NotNil(t, recs[1].value)
}

// Real transactions of several producers, interleaved, some aborted, read in fetches of every size.
func TestTrap06_AbortedAndControlRecords_AreNotDelivered(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real Kafka; not with -short")
	}
	brokers := testenv.Kafka(t)
	topic := testenv.Name(t)
	c := newCluster(Config{Brokers: brokers, ClientID: "test"})
	t.Cleanup(c.close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, c.ensure(ctx, []*sideTopic{{name: topic, partitions: 1}}, true))

	want := produceTransactions(t, ctx, brokers, topic)
	require.Greater(t, len(want), 100)
	for _, size := range []int32{64, 300, 1000, 5000, 60_000, 1 << 20} {
		t.Run(fmt.Sprint(size, " bytes"), func(t *testing.T) {
			require.Equal(t, want, readAll(t, ctx, c, topic, size))
		})
	}
}

// produceTransactions returns the values that were committed, in the order of the topic.
func produceTransactions(t *testing.T, ctx context.Context, brokers []string, topic string) (want []string) {
	t.Helper()
	const producers, rounds = 4, 12
	var clients []*kgo.Client
	for i := range producers {
		cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID(fmt.Sprint(topic, "-", i)), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(0))
		require.NoError(t, err)
		defer cl.Close()
		clients = append(clients, cl)
	}
	type sent struct {
		value  string
		offset int64
		abort  bool
	}
	var all []sent
	begun := make([]bool, producers)
	pending := make([][]int, producers)
	n := 0
	for round := range rounds * producers {
		p := round % producers
		if !begun[p] {
			require.NoError(t, clients[p].BeginTransaction())
			begun[p] = true
		}
		for range 1 + (round*7)%9 {
			r := clients[p].ProduceSync(ctx, &kgo.Record{Value: fmt.Appendf(nil, "%d-%040d", n, n)})
			require.NoError(t, r.FirstErr())
			pending[p] = append(pending[p], len(all))
			all = append(all, sent{fmt.Sprintf("%d-%040d", n, n), r[0].Record.Offset, false})
			n++
		}
		if round%3 == 0 { // others stay open over several rounds, and end in another order than they began
			continue
		}
		abort := round%4 == 1 || round%7 == 2
		require.NoError(t, clients[p].EndTransaction(ctx, kgo.TransactionEndTry(!abort)))
		for _, i := range pending[p] {
			all[i].abort = abort
		}
		pending[p], begun[p] = nil, false
	}
	for p := range producers {
		if begun[p] {
			require.NoError(t, clients[p].EndTransaction(ctx, kgo.TryCommit))
		}
	}
	for _, s := range all { // ProduceSync: in the order of offsets
		if !s.abort {
			want = append(want, s.value)
		}
	}
	require.Less(t, len(want), len(all), "some are aborted")
	return want
}

func readAll(t *testing.T, ctx context.Context, c *cluster, topic string, size int32) (got []string) {
	t.Helper()
	transport := c.transport(topic)
	defer c.drop(transport)
	client := &kafkago.Client{Addr: c.addr, Transport: transport, Timeout: requestTimeout}
	tp := TopicPartition{topic, 0}
	b, err := listBounds(ctx, client, []TopicPartition{tp})
	require.NoError(t, err)
	var buf []record
	for offset := int64(0); offset < b[tp].end; {
		f, err := fetchOnce(ctx, transport, c.addr, topic, 0, offset, size, buf)
		require.NoError(t, err)
		require.Greater(t, f.next, offset)
		require.Equal(t, b[tp].end, f.end)
		for _, r := range f.records {
			got = append(got, string(r.value))
		}
		buf, offset = f.records, f.next
	}
	return got
}
