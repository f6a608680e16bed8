package dedupe

import (
	"context"
	"time"
)

// Hook is any value that implements at least one of the Hook interfaces of this package; New refuses others. Hooks run on the
// message's goroutine: they must be quick, and a panic in one is logged and dropped.
type Hook any

// HookVerdict sees each answered delivery.
type HookVerdict interface {
	OnVerdict(ctx context.Context, e VerdictEvent)
}

// VerdictEvent is one answer of the guard. Scope, Mode and Verdict are from closed sets; Key is for logs, never for labels.
type VerdictEvent struct {
	Scope    string
	Mode     Mode
	Key      Key
	Verdict  Verdict // zero when Err is set
	Degraded bool    // answered without the fast path
	Took     time.Duration
	Err      error
}

// HookStoreCall sees each call to a store. Store is "redis" or "log", op the lower-case name of the method.
type HookStoreCall interface {
	OnStoreCall(ctx context.Context, store, op string, batch int, took time.Duration, err error)
}

// HookLeaseLost sees each handler whose lease was lost while it ran.
type HookLeaseLost interface {
	OnLeaseLost(ctx context.Context, k Key)
}

// HookAnomaly sees what should not happen and is answered safely all the same. Code is from a closed set: "swallowed-duplicate" (the
// handler returned nil after ErrDuplicate), "error-after-commit" (the handler failed after its row was committed), "handler-overrun" (a handler goes on
// after its context ended), "memory-lost".
type HookAnomaly interface {
	OnAnomaly(ctx context.Context, code string, k Key, err error)
}
