package consumer

import (
	"context"
	"time"
)

// Reasons of dead letters, a closed set.
const (
	ReasonExhausted   = "exhausted"    // Policy.Retry.Attempts failures
	ReasonPermanent   = "permanent"    // the handler said that trying again cannot help
	ReasonConflict    = "conflict"     // same id, other payload. Never redriven: the id is that of another message
	ReasonMissingID   = "missing-id"   // no id was found
	ReasonNotRecorded = "not-recorded" // Transactional: the handler returned nil without recording; its work may be committed
	ReasonUndecodable = "undecodable"  // the body is not what the handler or the fingerprint reads
	ReasonKills       = "kills-its-process"
)

// DeadLetter is a message with the reason of its death.
type DeadLetter struct {
	Message   *Message
	ID        string // empty: there was none, or, when read from a dead-letter topic, it was longer than 4 KiB
	Scope     string // who buried it
	Namespace string
	Reason    string // one of the Reason constants
	Error     string // capped, without payload
	Attempts  int
	DiedAt    time.Time
	// RedrivenBy is "by: reason" of the last redrive, set by Redrive before Resend.
	RedrivenBy string
}

// DeadLetters stores dead letters. Publish returns nil only when the broker has acknowledged the copy durably, and an error that wraps
// ErrLetterRefused when trying again cannot help. It returns when ctx ends. The copy carries LetterHeaders. The same letter may be published
// twice, after a crash or a lost reply; a letter without a claim (missing id, conflict) is the likelier one. Where it also has a method
// Topic() string, the log says where a letter went.
type DeadLetters interface {
	Publish(ctx context.Context, d DeadLetter) error
}
