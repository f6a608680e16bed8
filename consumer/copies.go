package consumer

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Headers of dead letters and retries, the same on all brokers. Values are percent-encoded (url.PathEscape), since ids and namespaces may
// hold any bytes.
const (
	HeaderID         = "idemq-id"          // up to 4 KiB; longer ones are found in the copy as in the original
	HeaderNamespace  = "idemq-namespace"   // the origin topic, or what stands for it
	HeaderScope      = "idemq-scope"       // who wrote the copy
	HeaderOrigin     = "idemq-origin"      // topic/partition@offset
	HeaderReason     = "idemq-reason"      // dead letters
	HeaderError      = "idemq-error"       // dead letters
	HeaderAttempts   = "idemq-attempts"    // failures so far
	HeaderDiedAt     = "idemq-died-at"     // dead letters: RFC 3339, UTC
	HeaderNotUntil   = "idemq-not-until"   // retry topics: unix milliseconds, for people
	HeaderRedrive    = "idemq-redrive"     // a dead letter sent again: the scope that may take it up
	HeaderRedrivenBy = "idemq-redriven-by" // a dead letter sent again: who, and why
)

const headerPrefix = "idemq-"

// foreign is h without the headers that are ours: on a copy, ours are written anew.
func (h Headers) foreign() Headers {
	out := make(Headers, 0, len(h)+8)
	for _, x := range h {
		if !strings.HasPrefix(x.Name, headerPrefix) {
			out = append(out, x)
		}
	}
	return out
}

func (h Headers) with(name, value string) Headers {
	return append(h, Header{Name: name, Value: []byte(url.PathEscape(value))})
}

// decoded returns one of our headers. False when it is not there; an error when it is no percent-encoding.
func (h Headers) decoded(name string) (string, bool, error) {
	raw, ok := h.Get(name)
	if !ok {
		return "", false, nil
	}
	s, err := url.PathUnescape(raw)
	if err != nil {
		return "", true, fmt.Errorf("consumer: header %s is not percent-encoded: %w", name, err)
	}
	return s, true, nil
}

// identityHeaders are what a copy needs to stay the same message wherever it is read.
func identityHeaders(m *Message, scope, namespace, id string) Headers {
	h := m.Headers.foreign().with(HeaderScope, scope).with(HeaderOrigin, m.origin().String())
	if id != "" && len(id) <= maxHeaderID {
		h = h.with(HeaderID, id).with(HeaderNamespace, namespace)
	}
	return h
}

// maxHeaderID bounds the ids that copies carry: a longer one could make a copy larger than the broker takes, and then its message could neither be
// parked nor retried. The id function finds it again, in what it found it in first, which the copy carries unchanged.
const maxHeaderID = 4 << 10

// RetryHeaders are the headers of m's copy on a retry topic, after Process returned d for it. The broker's record carries m's key and
// value unchanged. A copy of a marked message stays marked.
func RetryHeaders(m *Message, d Disposition) Headers {
	h := identityHeaders(m, m.scope, m.namespace, m.id).
		with(HeaderAttempts, strconv.Itoa(d.Failures)).
		with(HeaderNotUntil, strconv.FormatInt(time.Now().Add(d.After).UnixMilli(), 10))
	if m.redriven {
		h = h.with(HeaderRedrive, m.scope)
	}
	return h
}

// LetterHeaders are the headers of d's copy among the dead letters. With withError false the error's text is left out: for a letter that
// the broker finds too large.
func LetterHeaders(d DeadLetter, withError bool) Headers {
	h := identityHeaders(d.Message, d.Scope, d.Namespace, d.ID).
		with(HeaderReason, d.Reason).
		with(HeaderAttempts, strconv.Itoa(d.Attempts)).
		with(HeaderDiedAt, d.DiedAt.UTC().Format(time.RFC3339Nano))
	if withError && d.Error != "" {
		h = h.with(HeaderError, d.Error)
	}
	return h
}

// ResendHeaders are the headers of d's copy that is sent to its origin topic again, marked for the scope that buried it. The copy of a
// conflict letter carries no mark: it is another message than the one that died, and must not take its place.
func ResendHeaders(d DeadLetter) Headers {
	h := identityHeaders(d.Message, d.Scope, d.Namespace, d.ID)
	if d.Reason != ReasonConflict {
		h = h.with(HeaderRedrive, d.Scope)
	}
	if d.RedrivenBy != "" {
		h = h.with(HeaderRedrivenBy, d.RedrivenBy)
	}
	return h
}

// ParseLetter reads a message of a dead-letter topic, written by LetterHeaders. Its Message keeps the foreign headers only, and has the
// origin of the message that died. Unreadable headers are an error and leave their fields empty.
func ParseLetter(m *Message) (DeadLetter, error) {
	var errs []error
	text := func(name string) string {
		s, _, err := m.Headers.decoded(name)
		if err != nil {
			errs = append(errs, err)
		}
		return s
	}
	d := DeadLetter{
		ID: text(HeaderID), Namespace: text(HeaderNamespace), Scope: text(HeaderScope),
		Reason: text(HeaderReason), Error: text(HeaderError),
	}
	c := *m
	c.Headers = m.Headers.foreign()
	var err error
	if c.Origin, err = ParsePosition(text(HeaderOrigin)); err != nil {
		errs = append(errs, err)
	}
	if s := text(HeaderAttempts); s != "" {
		if d.Attempts, err = strconv.Atoi(s); err != nil {
			errs = append(errs, fmt.Errorf("consumer: header %s: %w", HeaderAttempts, err))
		}
	}
	if d.DiedAt, err = time.Parse(time.RFC3339Nano, text(HeaderDiedAt)); err != nil {
		errs = append(errs, fmt.Errorf("consumer: header %s: %w", HeaderDiedAt, err))
	}
	d.Message = &c
	return d, errors.Join(errs...)
}

func (m *Message) origin() Position {
	if m.Origin.Topic == "" {
		return m.Position
	}
	return m.Origin
}
