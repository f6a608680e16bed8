package consumer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// IDFunc finds the business id: the same on each redelivery of a message and on each copy that a producer sends, another for each other
// message. An empty id or an error is "missing id" (Policy.MissingID), never a retry.
type IDFunc func(*Message) (string, error)

// IDFromHeader, the usual one. RocketMQ: a user property.
func IDFromHeader(name string) IDFunc {
	return func(m *Message) (string, error) {
		id, ok := m.Headers.Get(name)
		if !ok {
			return "", fmt.Errorf("consumer: no header %q", name)
		}
		return id, nil
	}
}

// IDFromJSON reads a string or integer at a path such as "order.id" or "items.0.id". Integers of any size are kept exactly, as they are
// written; 42 and "42" are the same id. Names are compared exactly.
func IDFromJSON(path string) IDFunc {
	steps := strings.Split(path, ".")
	return func(m *Message) (string, error) {
		id, err := jsonID(m.Value, steps)
		if err != nil {
			return "", fmt.Errorf("consumer: id at JSON path %q: %w", path, err)
		}
		return id, nil
	}
}

// IDFromKey: only where each key is one message. A Kafka key is usually an entity, whose second event would count as a duplicate
// (the fingerprint turns that mistake into dead letters instead of losses).
func IDFromKey() IDFunc {
	return func(m *Message) (string, error) { return string(m.Key), nil }
}

// IDFromParts joins parts under a namespace so that ("a","bc") and ("ab","c") differ: each is preceded by its length. Every part must be
// there.
func IDFromParts(namespace string, parts ...IDFunc) IDFunc {
	return func(m *Message) (string, error) {
		var b strings.Builder
		write := func(s string) {
			b.WriteString(strconv.Itoa(len(s)))
			b.WriteByte(':')
			b.WriteString(s)
		}
		write(namespace)
		for i, part := range parts {
			s, err := part(m)
			if err == nil && s == "" {
				err = errors.New("empty")
			}
			if err != nil {
				return "", fmt.Errorf("consumer: part %d of the id: %w", i+1, err)
			}
			write(s)
		}
		return b.String(), nil
	}
}

// IDFromPosition: where the message was first read, Message.Origin, or Message.BrokerID where the broker has one. Covers redelivery by the
// broker, not a producer that sends twice. A topic that is deleted and made again begins with the same positions.
func IDFromPosition() IDFunc {
	return func(m *Message) (string, error) {
		switch {
		case m.BrokerID != "":
			return m.BrokerID, nil
		case m.Origin.Topic != "":
			return m.Origin.String(), nil
		case m.Topic != "":
			return m.Position.String(), nil
		}
		return "", errors.New("consumer: message has no position")
	}
}

// FirstOf takes the first that yields an id.
func FirstOf(fs ...IDFunc) IDFunc {
	return func(m *Message) (string, error) {
		var errs []error
		for _, f := range fs {
			id, err := f(m)
			if err == nil && id != "" {
				return id, nil
			}
			errs = append(errs, err)
		}
		return "", errors.Join(errs...)
	}
}
