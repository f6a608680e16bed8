package consumer

import (
	"context"
	"math"
	"math/rand/v2"
	"time"
)

// Delay is how long to wait after the n-th failure in a row, n from 1: Initial, grown by Factor each time up to Max, then spread by Jitter
// around that value. Zero fields take their defaults.
func (b Backoff) Delay(n int) time.Duration {
	b = b.withDefaults()
	d := float64(b.Initial) * math.Pow(b.Factor, float64(max(n, 1)-1))
	return spread(time.Duration(min(d, float64(b.Max))), b.Jitter)
}

// spread moves d by up to share of it to either side, so that waiters do not come back together.
func spread(d time.Duration, share float64) time.Duration {
	return d + time.Duration(float64(d)*share*(2*rand.Float64()-1))
}

// sleep waits for d; the reason when ctx ends or a drain begins earlier.
func sleep(ctx context.Context, d time.Duration) error {
	if err := stopping(ctx); err != nil || d <= 0 {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return stopping(ctx)
	case <-ctx.Done():
	case <-drainBegun(ctx):
	}
	return stopping(ctx)
}
