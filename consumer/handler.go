package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Handler applies a message. nil means applied. Permanent errors are not tried again; all others are, as Policy says. It must
// stop when ctx ends: its cause is dedupe.ErrLeaseLost, ErrHandlerTimeout, ErrDraining or ErrRevoked. A panic is a failure like an error.
type Handler func(ctx context.Context, m *Message) error

// BatchHandler applies several. nil: all applied. *BatchError: each as it says. Any other error: the batch is split and run again
// until the failing message is alone, so handlers of batches must be able to run again (sqlstore.TransactionalBatch gives that for free).
type BatchHandler func(ctx context.Context, ms []*Message) error

// BatchError has one entry a message, nil where it was applied. With another number of entries it is an error like any other, and so it is
// where the transaction of the batch took what did not fail back with it.
type BatchError struct{ Errs []error }

// Error counts, and tells the first.
func (e *BatchError) Error() string {
	failed, first := 0, error(nil)
	for _, err := range e.Errs {
		if err != nil {
			if failed++; first == nil {
				first = err
			}
		}
	}
	if first == nil {
		return fmt.Sprintf("consumer: none of %d messages failed", len(e.Errs))
	}
	return fmt.Sprintf("consumer: %d of %d messages failed, the first: %v", failed, len(e.Errs), first)
}

// Unwrap gives the entries to errors.Is and errors.As.
func (e *BatchError) Unwrap() []error { return e.Errs }

// Middleware runs inside the claim, outermost first. Nothing can be put outside of it: the claim is not a middleware.
type Middleware func(Handler) Handler

// Decoded is a message with its decoded body.
type Decoded[T any] struct {
	*Message
	Body T
}

// JSON decodes the body for h. A body that cannot be decoded is a permanent error, and the reason of its dead letter is ReasonUndecodable.
func JSON[T any](h func(ctx context.Context, m Decoded[T]) error) Handler {
	return func(ctx context.Context, m *Message) error {
		d, err := decode[T](m)
		if err != nil {
			return err
		}
		return h(ctx, d)
	}
}

// JSONBatch is JSON for batches: undecodable messages die alone, and h sees the others.
func JSONBatch[T any](h func(ctx context.Context, ms []Decoded[T]) error) BatchHandler {
	return func(ctx context.Context, ms []*Message) error {
		errs := make([]error, len(ms))
		var good []Decoded[T]
		var at []int // good[j] is ms[at[j]]
		for i, m := range ms {
			d, err := decode[T](m)
			if errs[i] = err; err == nil {
				good, at = append(good, d), append(at, i)
			}
		}
		if len(good) == len(ms) {
			return h(ctx, good)
		}
		if len(good) > 0 {
			err := h(ctx, good)
			var each *BatchError
			switch {
			case errors.As(err, &each) && len(each.Errs) == len(good):
				for j, i := range at {
					errs[i] = each.Errs[j]
				}
			case err != nil:
				return err
			}
		}
		return &BatchError{Errs: errs}
	}
}

func decode[T any](m *Message) (Decoded[T], error) {
	d := Decoded[T]{Message: m}
	if err := json.Unmarshal(m.Value, &d.Body); err != nil {
		return d, undecodable(jsonError(err))
	}
	return d, nil
}

// jsonError is err of encoding/json without the values that it quotes.
func jsonError(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind):
		return fmt.Errorf("JSON: field %q at byte %d does not fit type %v", kind.Field, kind.Offset, kind.Type)
	case errors.As(err, &syntax):
		return fmt.Errorf("JSON: wrong syntax at byte %d", syntax.Offset)
	}
	return fmt.Errorf("JSON: %T", err)
}

// ByTopic chooses a handler by the origin topic; a topic without one is a permanent error.
func ByTopic(handlers map[string]Handler) Handler {
	return func(ctx context.Context, m *Message) error {
		h := handlers[m.Origin.Topic]
		if h == nil {
			return Permanent(fmt.Errorf("consumer: no handler for topic %q", m.Origin.Topic))
		}
		return h(ctx, m)
	}
}
