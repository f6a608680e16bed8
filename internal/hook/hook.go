// Package hook calls what users attach to a guard, a pipeline or a consumer.
package hook

import (
	"context"
	"log/slog"
)

// Each calls f for each of hooks that is an H, in their order. A hook that panics is logged and must not take a message or a partition with
// it.
func Each[H, T any](ctx context.Context, log *slog.Logger, hooks []T, f func(H)) {
	for _, h := range hooks {
		if h, ok := any(h).(H); ok {
			safely(ctx, log, func() { f(h) })
		}
	}
}

func safely(ctx context.Context, log *slog.Logger, f func()) {
	defer func() {
		if p := recover(); p != nil {
			log.ErrorContext(ctx, "hook panicked", "panic", p)
		}
	}()
	f()
}
