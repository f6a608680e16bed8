package rocketmq

import "context"

// Hook is any value that implements at least one of the Hook interfaces of this package; NewConsumer refuses others. Hooks must be quick;
// a panic in one is logged and dropped.
type Hook any

// HookLag sees, every five seconds, how many messages of a queue are not settled yet; see Consumer.Lag.
type HookLag interface {
	OnLag(ctx context.Context, q Queue, lag int64)
}

func isHook(h Hook) bool {
	_, ok := h.(HookLag)
	return ok
}

func (r *run) tellLag(ctx context.Context, lag map[Queue]int64) {
	for _, h := range r.cfg.Hooks {
		if h, ok := h.(HookLag); ok {
			func() {
				defer func() {
					if p := recover(); p != nil {
						r.log.ErrorContext(ctx, "hook panicked", "panic", p)
					}
				}()
				for q, n := range lag {
					h.OnLag(ctx, q, n)
				}
			}()
		}
	}
}
