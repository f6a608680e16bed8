package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idemq/idemq/internal/testenv"
)

// testBroker is an embedded Kafka with the topic of the orders on it.
func testBroker(t *testing.T) (services, *broker) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return onBroker(t, cluster.ListenAddrs())
}

// eachBroker runs a test on the embedded Kafka and on a real one.
func eachBroker(t *testing.T, test func(t *testing.T, s services, b *broker)) {
	t.Run("kfake", func(t *testing.T) {
		s, b := testBroker(t)
		test(t, s, b)
	})
	t.Run("kafka", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a Kafka; left out by -short")
		}
		s, b := onBroker(t, testenv.Kafka(t))
		test(t, s, b)
	})
}

func onBroker(t *testing.T, brokers []string) (services, *broker) {
	t.Helper()
	group := testenv.Name(t)
	s := services{Brokers: brokers, Topic: group + ".orders", Group: group, Session: time.Second}
	b := openBroker(s.Brokers)
	t.Cleanup(b.close)
	require.NoError(t, b.recreate(t.Context(), s.Topic, 3, -1, func(string) bool { return false }))
	return s, b
}

func read(t *testing.T, b *broker, topic string) []kafka.Message {
	t.Helper()
	topics, err := b.topics(t.Context())
	require.NoError(t, err)
	var got []kafka.Message
	for m, err := range b.records(t.Context(), topic, topics[topic]) {
		require.NoError(t, err)
		got = append(got, m)
	}
	return got
}

func TestBroker_WhatWasSent_IsReadFromTheStart(t *testing.T) {
	eachBroker(t, func(t *testing.T, s services, b *broker) {
		require.Empty(t, read(t, b, s.Topic), "an empty topic ends at once")
		msgs := traffic{Orders: 700, Duplicates: 0.5, SKUs: 7, Seed: 3}.messages()
		sent, err := send(t.Context(), s, msgs, 0)
		require.NoError(t, err)
		require.Equal(t, len(msgs), sent)

		want, got := map[string]int{}, map[string]int{}
		for _, m := range msgs {
			want[fmt.Sprintf("%s %s", m.Headers[0].Value, m.Value)]++
		}
		for _, m := range read(t, b, s.Topic) {
			got[fmt.Sprintf("%s %s", m.Headers[0].Value, m.Value)]++
		}
		require.Equal(t, want, got)
	})
}

func TestSend_Rate_IsKept(t *testing.T) {
	s, _ := testBroker(t)
	start := time.Now()
	_, err := send(t.Context(), s, traffic{Orders: 100, SKUs: 2, Seed: 1}.messages(), 200)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(start), 400*time.Millisecond)
}

func TestSend_CancelledInBetween_SaysHowMuchWasSent(t *testing.T) {
	s, _ := testBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	sent, err := send(ctx, s, traffic{Orders: 100, SKUs: 2, Seed: 1}.messages(), 10)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Positive(t, sent)
	require.Less(t, sent, 100)
}

func TestSend_MissingTopic_SaysWhatToRun(t *testing.T) {
	s, _ := testBroker(t)
	s.Topic = "odrers"
	_, err := send(t.Context(), s, traffic{Orders: 1, SKUs: 1, Seed: 1}.messages(), 0)
	require.ErrorContains(t, err, "no such topic; run reset first")
}

func TestRecreate_TopicWithRecords_IsEmptyAfterwards(t *testing.T) {
	eachBroker(t, func(t *testing.T, s services, b *broker) {
		_, err := send(t.Context(), s, traffic{Orders: 10, SKUs: 1, Seed: 1}.messages(), 0)
		require.NoError(t, err)
		require.NoError(t, b.recreate(t.Context(), s.Topic, 5, -1, func(name string) bool { return name == s.Topic }))
		topics, err := b.topics(t.Context())
		require.NoError(t, err)
		require.Len(t, topics[s.Topic], 5)
		require.Empty(t, read(t, b, s.Topic))
	})
}

// TestNaive_EverythingDeliveredAgain_IsAppliedAgain is why idemq exists, and shows that pending and rewind work.
func TestNaive_EverythingDeliveredAgain_IsAppliedAgain(t *testing.T) {
	eachBroker(t, func(t *testing.T, s services, b *broker) {
		db := sqliteStock(t, map[string]int64{sku(1): 1_000_000})
		_, err := send(t.Context(), s, traffic{Orders: 50, SKUs: 1, Seed: 1}.messages(), 0)
		require.NoError(t, err)
		n, err := b.pending(t.Context(), s.Topic, s.naiveGroup())
		require.NoError(t, err)
		require.EqualValues(t, 50, n)

		settle := func() {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- consumeNaively(ctx, s, db, slog.New(slog.DiscardHandler), func() {}) }()
			bounded, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			require.NoError(t, poll(bounded, func() (bool, error) {
				n, err := b.pending(bounded, s.Topic, s.naiveGroup())
				return n == 0, err
			}))
			stop()
			require.NoError(t, <-ended)
		}
		settle()
		require.NoError(t, b.rewind(t.Context(), s.Topic, s.naiveGroup()))
		settle()

		books, err := readBooks(t.Context(), db)
		require.NoError(t, err)
		require.Len(t, books.movements, 100)
		require.NoError(t, b.forgetGroup(t.Context(), s.naiveGroup()))
		n, err = b.pending(t.Context(), s.Topic, s.naiveGroup())
		require.NoError(t, err)
		require.EqualValues(t, 50, n)
	})
}
