package consumer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Message is one delivery. Adapters fill it. A handler may keep it and its bytes after returning, and does not change them: the same
// message may be tried again.
type Message struct {
	Position          // where this delivery was read
	Origin   Position // where the message was first read; differs from Position on retry topics and redrives. Zero: the same
	Key      []byte   // Kafka record key, RocketMQ sharding key; nil: none
	Value    []byte
	Headers  Headers
	SentAt   time.Time // the broker's timestamp
	// Redeliveries as the broker counts them; -1 when it does not. Shown, never counted: attempts that matter are Claim().Attempt().
	Redeliveries int
	// BrokerID is the broker's own name for the message, where it has one that stays the same on each redelivery and send-back (RocketMQ's
	// UNIQ_KEY); empty on Kafka. IDFromPosition prefers it.
	BrokerID string
	// OwnRetry says that the adapter read the message from a retry topic of its own group: there, and on copies on their origin topic that are
	// marked for our scope (unless the id function finds another id in them), the idemq-* headers are believed. Everywhere else they are ignored: a service that forwards all headers must not
	// change identity.
	OwnRetry bool
	// Raw is the client's own message (kafka.Message, *primitive.MessageExt).
	Raw any

	id        string
	namespace string
	scope     string
	redriven  bool
	claim     *dedupe.Claim
}

// ID is the business id; empty before the pipeline has extracted it, and when there is none.
func (m *Message) ID() string { return m.id }

// Namespace keeps the ids of different origins apart: the origin topic, or empty with Config.SharedIDs. Empty before the pipeline has
// looked at the message.
func (m *Message) Namespace() string { return m.namespace }

// Claim is the right under which the handler runs; nil outside of it.
func (m *Message) Claim() *dedupe.Claim { return m.claim }

// Position in a broker.
type Position struct {
	Topic     string
	Partition int32 // or queue
	Offset    int64
}

// String is "topic/partition@offset", which ParsePosition reads.
func (p Position) String() string { return fmt.Sprintf("%s/%d@%d", p.Topic, p.Partition, p.Offset) }

// ParsePosition reads "topic/partition@offset".
func ParsePosition(s string) (Position, error) {
	bad := fmt.Errorf("consumer: position %q: want topic/partition@offset", s)
	at, slash := strings.LastIndexByte(s, '@'), strings.LastIndexByte(s, '/')
	if slash < 1 || at < slash {
		return Position{}, bad
	}
	partition, err1 := strconv.ParseInt(s[slash+1:at], 10, 32)
	offset, err2 := strconv.ParseInt(s[at+1:], 10, 64)
	if err1 != nil || err2 != nil {
		return Position{}, bad
	}
	return Position{Topic: s[:slash], Partition: int32(partition), Offset: offset}, nil
}

// Header is one of possibly several of its name.
type Header struct {
	Name  string
	Value []byte
}

// Headers of a message, in the broker's order. Names are compared exactly.
type Headers []Header

// Get returns the last value of name: the one a republishing producer set.
func (h Headers) Get(name string) (string, bool) {
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Name == name {
			return string(h[i].Value), true
		}
	}
	return "", false
}
