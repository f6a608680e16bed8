package kafka

import (
	"net/url"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/idemq/idemq/consumer"
)

// HeaderMessageID is where WithID puts the id; read it by consumer.IDFromHeader(kafka.HeaderMessageID).
const HeaderMessageID = "msg_id"

// WithID gives m a business id, for producers: the same id each time the same thing is sent. It returns m; a header of that name
// that m has already is replaced.
func WithID(m *kafkago.Message, id string) *kafkago.Message {
	kept := make([]kafkago.Header, 0, len(m.Headers)+1)
	for _, h := range m.Headers {
		if h.Key != HeaderMessageID {
			kept = append(kept, h)
		}
	}
	m.Headers = append(kept, kafkago.Header{Key: HeaderMessageID, Value: []byte(id)})
	return m
}

// FromKafka is for loops of your own: pipe.Settle(ctx, kafka.FromKafka(m), letters). The bytes are shared with m.
func FromKafka(m kafkago.Message) *consumer.Message {
	hs := make(consumer.Headers, len(m.Headers))
	for i, h := range m.Headers {
		hs[i] = consumer.Header{Name: h.Key, Value: h.Value}
	}
	at := consumer.Position{Topic: m.Topic, Partition: int32(m.Partition), Offset: m.Offset}
	return &consumer.Message{
		Position: at, Origin: at,
		Key: m.Key, Value: m.Value, Headers: hs,
		SentAt:       m.Time,
		Redeliveries: -1, // Kafka does not count
		Raw:          m,
	}
}

// messageOf is a fetched record as the pipeline sees it.
func messageOf(tp TopicPartition, rec *record) *consumer.Message {
	km := kafkago.Message{Topic: tp.Topic, Partition: tp.Partition, Offset: rec.offset, Key: rec.key, Value: rec.value, Time: rec.time}
	if len(rec.headers) > 0 {
		km.Headers = make([]kafkago.Header, len(rec.headers))
		for i, h := range rec.headers {
			km.Headers[i] = kafkago.Header(h)
		}
	}
	return FromKafka(km)
}

// copyOf is m for another topic: key and value as they are.
func copyOf(m *consumer.Message, hs consumer.Headers) kafkago.Message {
	km := kafkago.Message{Key: m.Key, Value: m.Value, Headers: make([]kafkago.Header, len(hs))}
	for i, h := range hs {
		km.Headers[i] = kafkago.Header{Key: h.Name, Value: h.Value}
	}
	return km
}

// header reads one of the headers of a copy; empty when it is missing or unreadable.
func header(m *consumer.Message, name string) string {
	raw, _ := m.Headers.Get(name)
	s, err := url.PathUnescape(raw)
	if err != nil {
		return ""
	}
	return s
}
