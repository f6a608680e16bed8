package rocketmq

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/idemq/idemq/consumer"
)

// HeaderMessageID is the property where WithID puts the id; read it by consumer.IDFromHeader(rocketmq.HeaderMessageID).
const HeaderMessageID = "msg_id"

// Headers that dead letters on RocketMQ have besides those of package consumer.
const (
	HeaderBroker    = "idemq-broker"     // where the message was read
	HeaderBrokerKey = "idemq-broker-key" // its UNIQ_KEY, by which the broker's tools find it
)

// WithID gives m a business id, for producers: the same id each time the same thing is sent. It becomes a KEYS of its own too, for the
// broker's tools, unless m has KEYS or the id has a space. It returns m. RocketMQ loses ids with the characters \x01 and \x02, and messages
// with empty ones are refused by consumer.IDFromHeader.
func WithID(m *primitive.Message, id string) *primitive.Message {
	m.WithProperty(HeaderMessageID, id)
	if m.GetKeys() == "" && !strings.Contains(id, primitive.PropertyKeySeparator) {
		m.WithKeys([]string{id})
	}
	return m
}

// IDFromKeys takes the message's KEYS, which must be exactly one.
func IDFromKeys() consumer.IDFunc {
	return func(m *consumer.Message) (string, error) {
		keys, _ := m.Headers.Get(primitive.PropertyKeys)
		switch each := strings.Fields(keys); len(each) {
		case 0:
			return "", errors.New("rocketmq: message has no KEYS")
		case 1:
			return each[0], nil
		default:
			return "", fmt.Errorf("rocketmq: message has %d KEYS: which is its id cannot be known", len(each))
		}
	}
}

// IDFromKeysOrBroker takes the message's KEYS, which must be exactly one, and, where there are none, the client's UNIQ_KEY, which covers
// redelivery by the broker but not a producer that sends twice.
func IDFromKeysOrBroker() consumer.IDFunc {
	fromKeys, fromBroker := IDFromKeys(), consumer.IDFromPosition()
	return func(m *consumer.Message) (string, error) {
		if keys, _ := m.Headers.Get(primitive.PropertyKeys); strings.TrimSpace(keys) == "" {
			return fromBroker(m)
		}
		return fromKeys(m)
	}
}

// ofBroker are the properties that belong to one delivery, not to the message: a copy must not carry them.
var ofBroker = map[string]bool{
	primitive.PropertyUniqueClientMessageIdKeyIndex: true, primitive.PropertyShardingKey: true, primitive.PropertyWaitStoreMsgOk: true,
	primitive.PropertyDelayTimeLevel: true, primitive.PropertyRetryTopic: true, primitive.PropertyTimerDeliverMS: true,
	primitive.PropertyRealTopic: true, primitive.PropertyRealQueueId: true, primitive.PropertyTransactionPrepared: true,
	primitive.PropertyProducerGroup: true, primitive.PropertyMinOffset: true, primitive.PropertyMaxOffset: true,
	primitive.PropertyOriginMessageId: true, primitive.PropertyTransferFlag: true, primitive.PropertyCorrectionFlag: true,
	primitive.PropertyMQ2Flag: true, primitive.PropertyReconsumeTime: true, primitive.PropertyMsgRegion: true,
	primitive.PropertyTraceSwitch: true, primitive.PropertyMaxReconsumeTimes: true, primitive.PropertyConsumeStartTime: true,
	primitive.PropertyTranscationPreparedQueueOffset: true, primitive.PropertyTranscationCheckTimes: true,
	primitive.PropertyCheckImmunityTimeInSeconds: true, primitive.PropertyTransactionID: true, primitive.PropertyMessageReplyToClient: true,
	primitive.PropertyMessageTTL: true, primitive.PropertyReplyMessageArriveTime: true, primitive.PropertyMsgType: true,
	primitive.PropertyCluster: true, "DLQ_ORIGIN_TOPIC": true, "DLQ_ORIGIN_MESSAGE_ID": true, "TIMER_DELAY_SEC": true, "TIMER_DELAY_MS": true,
	"TIMER_ENQUEUE_MS": true, "TIMER_DEQUEUE_MS": true, "TIMER_ROLL_TIMES": true, "TIMER_OUT_MS": true, "__SHARDINGKEY": true,
}

// FromRocketMQ is for loops of your own: pipe.Settle(ctx, rocketmq.FromRocketMQ(m), letters). Headers are the user's properties, with
// KEYS and TAGS, in the order of their names; Key is the sharding key. A message that comes back from a retry has its first topic, and partition -1, since
// RocketMQ does not tell where in the topic it was first; BrokerID, its UNIQ_KEY, stays the same. The body is shared with m.
func FromRocketMQ(m *primitive.MessageExt) *consumer.Message {
	properties := m.GetProperties()
	out := &consumer.Message{
		Position:     consumer.Position{Topic: m.Topic, Partition: -1, Offset: m.QueueOffset},
		Value:        m.Body,
		SentAt:       time.UnixMilli(m.StoreTimestamp),
		Redeliveries: int(m.ReconsumeTimes),
		Raw:          m,
	}
	first := properties[primitive.PropertyRetryTopic]
	switch {
	case first != "":
		out.Topic = first
	case m.Queue != nil:
		out.Partition = int32(m.Queue.QueueId) //nolint:gosec // a broker's queues are few
	}
	if key, ok := properties[primitive.PropertyShardingKey]; ok {
		out.Key = []byte(key)
	}
	for _, id := range []string{properties[primitive.PropertyUniqueClientMessageIdKeyIndex], properties[primitive.PropertyOriginMessageId], m.OffsetMsgId} {
		if out.BrokerID = id; id != "" {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !ofBroker[name] {
			out.Headers = append(out.Headers, consumer.Header{Name: name, Value: []byte(properties[name])})
		}
	}
	out.Origin = out.Position
	return out
}

// maxProperties is a little less than what brokers take, 32,767 bytes, for what they and we add.
const maxProperties = 32_000

// errTooLarge: writing it again cannot help.
var errTooLarge = errors.New("properties exceed 32,000 bytes, about RocketMQ's limit")

// Characters that RocketMQ ends names and values with. A property that has one is lost, and nobody is told.
var unprintable = strings.NewReplacer("\x01", "%01", "\x02", "%02")

// propertiesOf are those of a copy of m with headers hs. An empty value is none to RocketMQ.
func propertiesOf(m *consumer.Message, hs consumer.Headers) (map[string]string, error) {
	out := map[string]string{}
	for _, h := range hs {
		if name := unprintable.Replace(h.Name); name != "" && len(h.Value) > 0 {
			out[name] = unprintable.Replace(string(h.Value))
		}
	}
	if len(m.Key) > 0 {
		out[primitive.PropertyShardingKey] = unprintable.Replace(string(m.Key))
	}
	size := 0
	for name, value := range out {
		size += len(name) + len(value) + 2
	}
	if size > maxProperties {
		return nil, errTooLarge
	}
	return out, nil
}

// withBroker adds where the message was read, which a Position does not say.
func withBroker(hs consumer.Headers, m *consumer.Message) consumer.Headers {
	if raw, ok := m.Raw.(*primitive.MessageExt); ok && raw.Queue != nil && raw.Queue.BrokerName != "" {
		hs = append(hs, consumer.Header{Name: HeaderBroker, Value: []byte(raw.Queue.BrokerName)})
	}
	if m.BrokerID != "" {
		hs = append(hs, consumer.Header{Name: HeaderBrokerKey, Value: []byte(m.BrokerID)})
	}
	return hs
}
