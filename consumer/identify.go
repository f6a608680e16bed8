package consumer

import (
	"errors"
	"fmt"

	"github.com/idemq/idemq/dedupe"
)

// identify fills in who m is: origin, namespace, id, and whether it is a marked copy of a dead letter. The headers of copies win, where
// they are believed. An error is a missing id.
func (p *Pipeline) identify(m *Message) error {
	m.scope = p.cfg.Guard.Scope()
	m.id, m.namespace, m.redriven, m.claim = "", "", false, nil
	m.Origin = m.origin()
	m.redriven = m.marked()
	if m.OwnRetry || m.redriven {
		if err := m.readCopy(); err != nil {
			return err
		}
	}
	if m.id != "" && (m.OwnRetry || !p.another(m)) {
		return nil
	}
	if m.id != "" { // a service forwarded the headers with a message of its own
		m.id, m.namespace, m.redriven, m.Origin = "", "", false, m.Position
	}
	if !p.cfg.SharedIDs {
		m.namespace = m.Origin.Topic
	}
	id, err := p.extract(m)
	if id == "" && p.cfg.Policy.MissingID == MissingIDUsePosition {
		id, err = IDFromPosition()(m)
	}
	m.id = id
	return err
}

// marked says whether m is a dead letter of our scope that was sent again, on its own retry topics or where it came from. A mark that a
// service carried on to another topic is none, nor one on a message with another id (another).
func (m *Message) marked() bool {
	mark, _, err := m.Headers.decoded(HeaderRedrive)
	if err != nil || mark != m.scope {
		return false
	}
	text, _, err := m.Headers.decoded(HeaderOrigin)
	if err != nil {
		return false
	}
	origin, err := ParsePosition(text)
	return err == nil && (m.OwnRetry || origin.Topic == m.Topic)
}

// another says that a message with the headers of a redriven copy has an id of its own. Ids that depend on where a message lies say nothing
// about a copy, which lies elsewhere.
func (p *Pipeline) another(m *Message) bool {
	id, err := p.extract(m)
	if err != nil || id == m.id {
		return false
	}
	elsewhere := *m
	elsewhere.Position, elsewhere.Origin, elsewhere.BrokerID = Position{Topic: m.Topic, Offset: -1}, Position{}, ""
	moved, err := p.extract(&elsewhere)
	return err == nil && moved == id
}

// readCopy takes identity from the headers of a copy.
func (m *Message) readCopy() error {
	origin, ok, err := m.Headers.decoded(HeaderOrigin)
	if err == nil && ok {
		m.Origin, err = ParsePosition(origin)
	}
	id, _, err2 := m.Headers.decoded(HeaderID)
	namespace, _, err3 := m.Headers.decoded(HeaderNamespace)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	if id != "" {
		m.id, m.namespace = id, namespace
	}
	return nil
}

// extract asks the id function. Its panic is a missing id: no id function may stop a consumer.
func (p *Pipeline) extract(m *Message) (id string, err error) {
	defer func() {
		if v := recover(); v != nil {
			id, err = "", fmt.Errorf("consumer: id function panicked: %v", v)
		}
	}()
	id, err = p.cfg.ID(m)
	switch {
	case err != nil:
		return "", err
	case id == "":
		return "", errors.New("consumer: id is empty")
	}
	return id, nil
}

// delivery is what the guard is asked about m. An error: the body cannot be compared.
func (p *Pipeline) delivery(m *Message) (d dedupe.Delivery, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("consumer: fingerprint function panicked: %v", v)
		}
	}()
	f, err := p.cfg.Fingerprint(m)
	if err == nil && f.IsZero() {
		err = errors.New("consumer: fingerprint function returned the zero fingerprint; use NoFingerprint to compare nothing")
	}
	return dedupe.Delivery{ID: m.id, Namespace: m.namespace, Redriven: m.redriven, Fingerprint: f}, err
}
