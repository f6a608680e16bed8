package memory

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/lanes"
)

// gate holds all work while a store cannot answer, or while the user wants it.
type gate struct {
	pool  *lanes.Pool
	ready func(context.Context) error
	log   *slog.Logger

	mu     sync.Mutex
	ctx    context.Context // ends the probes; nil: none may begin
	probes sync.WaitGroup
	cause  error // of the outage
	user   bool
}

// open lets probes begin. The returned func ends them and waits.
func (g *gate) open(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	g.mu.Lock()
	g.ctx = ctx
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		g.ctx = nil
		g.mu.Unlock()
		cancel()
		g.probes.Wait()
	}
}

// outage stops work until the store answers: one probe at a time asks it, more and more seldom.
func (g *gate) outage(cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause != nil || g.ctx == nil {
		return
	}
	g.cause = cause
	g.pool.Pause()
	g.log.ErrorContext(g.ctx, "store does not answer; fetching stops until it does", "err", cause)
	ctx := g.ctx
	g.probes.Go(func() { g.probe(ctx) })
}

func (g *gate) probe(ctx context.Context) {
	backoff := consumer.Backoff{Max: 5 * time.Second}
	for n := 1; ; n++ {
		if !sleep(ctx, backoff.Delay(n)) || g.ready(ctx) == nil {
			break
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cause = nil
	g.letGo()
}

func (g *gate) pause() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.user = true
	g.pool.Pause()
}

func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.user = false
	g.letGo()
}

func (g *gate) letGo() {
	if g.cause == nil && !g.user {
		g.pool.Resume()
	}
}

// held says whether work is held, and by which outage.
func (g *gate) held() (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.user || g.cause != nil, g.cause
}
