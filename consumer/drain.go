package consumer

import (
	"context"
	"errors"
)

// ErrDraining is the cause of a handler's cancelled context when the drain timeout is over.
var ErrDraining = errors.New("consumer: draining")

// ErrRevoked is the cause of a handler's cancelled context when its partition or queue went to another consumer and the broker left no
// time to drain.
var ErrRevoked = errors.New("consumer: partition revoked")

// ErrDrainTimeout comes from Run of an adapter: handlers did not return, although their contexts ended. Their claims are not
// released; their leases end.
var ErrDrainTimeout = errors.New("consumer: handlers still running after the drain")

type drainKey struct{}

// WithDrain is for adapters. From the moment that begun is closed, Process and its relatives start nothing new and end every wait with
// Again and Draining; a handler that runs already may go on until ctx itself ends. The cause of that end is ErrDraining or ErrRevoked.
func WithDrain(ctx context.Context, begun <-chan struct{}) context.Context {
	return context.WithValue(ctx, drainKey{}, begun)
}

// drainBegun is nil (blocks for ever) for a context without WithDrain.
func drainBegun(ctx context.Context) <-chan struct{} {
	begun, _ := ctx.Value(drainKey{}).(<-chan struct{})
	return begun
}

// stopping says why nothing new may start under ctx; nil: it may.
func stopping(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-drainBegun(ctx):
		return ErrDraining
	default:
		return nil
	}
}
