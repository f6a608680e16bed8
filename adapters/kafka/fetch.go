package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	fetchapi "github.com/segmentio/kafka-go/protocol/fetch"
)

const (
	fetchWait         = 500 * time.Millisecond // the broker answers then, with nothing if there is nothing
	fetchMaxBytes     = 8 << 20
	fetchDeadline     = 30 * time.Second // for a slow link; a broker that is gone is noticed by its connection
	readCommitted     = 1
	noSession         = -1
	consumerReplicaID = -1
)

// errTopicGone: the topic or partition is not in the cluster's metadata. kafka-go finds that out by itself, without a kafka error to test for.
var errTopicGone = errors.New("topic or partition does not exist")

// roundTripper is the part of a Transport that fetching needs.
type roundTripper interface {
	RoundTrip(ctx context.Context, addr net.Addr, req kafkago.Request) (kafkago.Response, error)
}

// fetched is one answer of the leader of a partition.
type fetched struct {
	records []record
	next    int64 // where to fetch next
	start   int64 // log start offset
	end     int64 // up to where a read-committed reader may read: the last stable offset
}

// fetchOnce asks for records from offset on. Its records reuse buf, so at most one answer per buffer is in use. Errors: kafkago.Error of
// the partition, errTopicGone, ctx's, or of the network.
func fetchOnce(ctx context.Context, rt roundTripper, addr net.Addr, topic string, partition int, offset int64, maxBytes int32, buf []record) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchDeadline)
	defer cancel()
	res, err := rt.RoundTrip(ctx, addr, &fetchapi.Request{
		ReplicaID:      consumerReplicaID,
		MaxWaitTime:    int32(fetchWait / time.Millisecond),
		MinBytes:       1,
		MaxBytes:       fetchMaxBytes,
		IsolationLevel: readCommitted,
		SessionEpoch:   noSession,
		Topics: []fetchapi.RequestTopic{{
			Topic: topic,
			Partitions: []fetchapi.RequestPartition{{
				Partition:          int32(partition),
				CurrentLeaderEpoch: -1,
				FetchOffset:        offset,
				LogStartOffset:     -1,
				PartitionMaxBytes:  maxBytes,
			}},
		}},
	})
	if err != nil {
		if errors.Is(err, protocol.ErrNoTopic) || errors.Is(err, protocol.ErrNoPartition) {
			return fetched{}, errTopicGone
		}
		return fetched{}, err
	}
	r, ok := res.(*fetchapi.Response)
	if !ok {
		return fetched{}, fmt.Errorf("unexpected answer %T to a fetch", res)
	}
	if r.ErrorCode != 0 {
		return fetched{}, kafkago.Error(r.ErrorCode)
	}
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return fetched{}, fmt.Errorf("answer to a fetch has %d topics; want one with one partition", len(r.Topics))
	}
	p := &r.Topics[0].Partitions[0]
	recs, next, err := committed(buf[:0], p, offset)
	f := fetched{records: recs, next: next, start: p.LogStartOffset, end: p.LastStableOffset}
	if f.end < 0 {
		f.end = p.HighWatermark
	}
	switch {
	case p.ErrorCode != 0:
		return f, kafkago.Error(p.ErrorCode)
	case err != nil:
		return f, err
	}
	return f, nil
}
