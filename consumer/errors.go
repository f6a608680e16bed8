package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrHandlerTimeout is the cause of a handler's cancelled context when Policy.HandlerTimeout is over. It matches
// context.DeadlineExceeded. Unlike other cancellations it counts as a failure.
var ErrHandlerTimeout error = handlerTimeout{}

type handlerTimeout struct{}

func (handlerTimeout) Error() string        { return "consumer: handler timeout is over" }
func (handlerTimeout) Is(target error) bool { return target == context.DeadlineExceeded }

// ErrLetterRefused, wrapped, is what DeadLetters.Publish returns when trying again cannot help: the letter is too large, the topic is not
// there, writing is forbidden. Process answers Halt: the message stays where it is.
var ErrLetterRefused = errors.New("consumer: dead letter refused")

// ErrNoDeadLetters: a message could only go on as a dead letter, and Policy.DeadLetter is off or no DeadLetters was given. Process answers
// Halt.
var ErrNoDeadLetters = errors.New("consumer: dead letters are off")

// ErrMissingID: no id was found and Policy.MissingID is MissingIDHalt.
var ErrMissingID = errors.New("consumer: message has no id")

// Permanent says that trying again cannot help: the message becomes a dead letter now. Nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent reports whether err was marked by Permanent, itself or something it wraps.
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// RetryAfter asks for at least d before the next attempt; the policy's delay counts where it is longer. Nil stays nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{d, err}
}

type retryAfterError struct {
	after time.Duration
	err   error
}

func (e *retryAfterError) Error() string { return e.err.Error() }
func (e *retryAfterError) Unwrap() error { return e.err }

func retryAfter(err error) time.Duration {
	var r *retryAfterError
	if errors.As(err, &r) {
		return r.after
	}
	return 0
}

// undecodableError: the body is not what the handler reads. Its text names the place and never the payload.
type undecodableError struct{ err error }

func (e *undecodableError) Error() string {
	return "consumer: body cannot be decoded: " + e.err.Error()
}
func (e *undecodableError) Unwrap() error { return e.err }

func undecodable(err error) error { return Permanent(&undecodableError{err}) }

// panicError is a handler that panicked or called runtime.Goexit. The stack is for the log.
type panicError struct {
	value any // nil: Goexit
	stack []byte
}

func (e *panicError) Error() string {
	if e.value == nil {
		return "consumer: handler called runtime.Goexit"
	}
	return fmt.Sprintf("consumer: handler panicked: %v", e.value)
}

func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// maxErrorBytes caps the text of an error in a dead letter.
const maxErrorBytes = 1024

// errorText is err in at most maxErrorBytes of valid UTF-8.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	return strings.ToValidUTF8(s[:min(len(s), maxErrorBytes)], "")
}
