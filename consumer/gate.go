package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/idemq/idemq/internal/broadcast"
)

// gate lets runs of a pipeline go beside each other, except those that must be alone: a message that killed its process twice runs
// with nothing beside it, so that only it can be blamed for the third death. Whoever waits to be alone goes first. sync.RWMutex would
// do, if waiting for it ended with a context.
type gate struct {
	mu      sync.Mutex
	inside  int
	alone   bool
	turn    int // of those that were alone
	waiting int // to be alone
	changed broadcast.Signal
}

// enter waits for its turn; an error, and nothing to leave, when ctx ends or a drain begins. No claim may be held while waiting.
func (g *gate) enter(ctx context.Context, alone bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if alone {
		g.waiting++
		defer func() { g.waiting--; g.changed.Fire() }()
	}
	for g.alone || alone && g.inside > 0 || !alone && g.waiting > 0 {
		changed := g.changed.Wait()
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-drainBegun(ctx):
		}
		g.mu.Lock()
		if err := stopping(ctx); err != nil {
			return err
		}
	}
	g.inside++
	if g.alone = alone; alone {
		g.turn++
	}
	return nil
}

// overdue lets the others in after d beside the one that is alone: it may never leave. stop is for when it does.
func (g *gate) overdue(d time.Duration) (stop func() bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	turn := g.turn
	return time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.turn == turn {
			g.alone = false
			g.changed.Fire()
		}
	}).Stop
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	g.alone = false
	g.changed.Fire()
}
