package testenv_test

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

func TestKafka_TakesAndGivesMessages(t *testing.T) {
	topic := testenv.Name(t)
	brokers := testenv.Kafka(t)
	createTopic(t, brokers[0], topic)
	produce(t, brokers[0], topic, "hello")
	require.Equal(t, "hello", consumeFirst(t, brokers[0], topic))
}

func TestOwnKafka_KeepsItsTopicsWhenKilled(t *testing.T) {
	s := testenv.OwnKafka(t, testenv.KafkaOptions{})
	createTopic(t, s.Addr, "orders")
	produce(t, s.Addr, "orders", "hello")
	require.NoError(t, s.Kill())
	requireRefused(t, s.Addr)
	require.NoError(t, s.Start())
	require.Equal(t, "hello", consumeFirst(t, s.Addr, "orders"))
}

func TestOwnKafka_HasMoreListenersOnDemand(t *testing.T) {
	s := testenv.OwnKafka(t, testenv.KafkaOptions{
		Listeners: map[string]string{"SASL": "SASL_PLAINTEXT"},
		Extra: "sasl.enabled.mechanisms=PLAIN\n" +
			"listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_u=\"p\";",
	})
	for password, want := range map[string]bool{"p": true, "wrong": false} {
		dialer := &kafka.Dialer{Timeout: 10 * time.Second, SASLMechanism: plain.Mechanism{Username: "u", Password: password}}
		conn, err := dialer.DialContext(t.Context(), "tcp", s.Listeners["SASL"])
		if want {
			require.NoError(t, err)
			require.NoError(t, conn.Close())
		} else {
			require.ErrorContains(t, err, "SASL Authentication Failed")
		}
	}
}

func createTopic(t *testing.T, broker, topic string) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(broker), Timeout: 10 * time.Second, Transport: transport(t, topic)}
	created, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, created.Errors[topic])
}

func produce(t *testing.T, broker, topic, value string) {
	t.Helper()
	w := &kafka.Writer{
		Addr: kafka.TCP(broker), Topic: topic, Transport: transport(t, topic),
		RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
	}
	require.Eventually(t, func() bool { // a topic is known some time after it was created
		return w.WriteMessages(t.Context(), kafka.Message{Value: []byte(value)}) == nil
	}, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, w.Close())
}

func consumeFirst(t *testing.T, broker, topic string) string {
	t.Helper()
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: topic, MaxWait: 100 * time.Millisecond})
	m, err := r.ReadMessage(t.Context())
	require.NoError(t, err)
	require.NoError(t, r.Close())
	return string(m.Value)
}

func transport(t *testing.T, topic string) *kafka.Transport {
	tr := &kafka.Transport{MetadataTopics: []string{topic}, MetadataTTL: 100 * time.Millisecond}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}
