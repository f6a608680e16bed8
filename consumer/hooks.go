package consumer

import (
	"context"
	"time"
)

// Hook is any value that implements at least one of the Hook interfaces here; NewPipeline refuses others. One value may also be a
// dedupe.Hook. Hooks run on the message's goroutine: they must be quick, and a panic in one is logged and dropped.
type Hook any

// HookSettled sees the end of each delivery. took includes waiting and retries in place.
type HookSettled interface {
	OnSettled(ctx context.Context, m *Message, d Disposition, took time.Duration)
}

// HookHandled sees each run of a handler, once for each message of a batch. attempt is Claim.Attempt; took is the whole batch's. m.Claim is
// still there.
type HookHandled interface {
	OnHandled(ctx context.Context, m *Message, attempt int, took time.Duration, err error)
}

// HookDeadLetter sees each stored dead letter.
type HookDeadLetter interface {
	OnDeadLetter(ctx context.Context, d DeadLetter)
}

func isHook(h Hook) bool {
	switch h.(type) {
	case HookSettled, HookHandled, HookDeadLetter:
		return true
	}
	return false
}
