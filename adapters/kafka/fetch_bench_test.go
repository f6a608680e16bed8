package kafka

import (
	"context"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

// BenchmarkFetch reads a topic of 100,000 messages of 100 bytes from its start: by what this package fetches with, and by kafka-go's Reader.
func BenchmarkFetch(b *testing.B) {
	brokers, topic := testenv.Kafka(b), testenv.Name(b)
	const n = 100_000
	c := newCluster(Config{Brokers: brokers})
	b.Cleanup(c.close)
	ctx := context.Background()
	require.NoError(b, c.ensure(ctx, []*sideTopic{{name: topic, partitions: 1}}, true))
	w := &kafkago.Writer{Addr: c.addr, Topic: topic, RequiredAcks: kafkago.RequireAll, BatchSize: 1000, Transport: c.transport(topic)}
	ms := make([]kafkago.Message, n)
	for i := range ms {
		ms[i].Value = make([]byte, 100)
	}
	require.NoError(b, w.WriteMessages(ctx, ms...))
	require.NoError(b, w.Close())

	rate := func(b *testing.B) { b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "messages/s") }
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		transport := c.transport(topic)
		defer c.drop(transport)
		var buf []record
		for b.Loop() {
			for offset := int64(0); offset < n; {
				f, err := fetchOnce(ctx, transport, c.addr, topic, 0, offset, partitionMaxBytes, buf)
				require.NoError(b, err)
				for i := range f.records {
					messageOf(TopicPartition{topic, 0}, &f.records[i])
				}
				buf, offset = f.records, f.next
			}
		}
		rate(b)
	})
	b.Run("reader", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r := kafkago.NewReader(kafkago.ReaderConfig{Brokers: brokers, Topic: topic, Partition: 0, MaxBytes: fetchMaxBytes})
			for range n {
				_, err := r.FetchMessage(ctx)
				require.NoError(b, err)
			}
			b.StopTimer() // closing takes it seconds
			require.NoError(b, r.Close())
			b.StartTimer()
		}
		rate(b)
	})
}
