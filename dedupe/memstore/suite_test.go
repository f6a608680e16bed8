package memstore_test

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/dedupe/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is moved by hand. It starts just before an hour that many clocks leave out.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 29, 0, 59, 59, 999_999_999, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(_ *testing.T, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type storeHarness struct{ *clock }

func (h storeHarness) Open(*testing.T) dedupe.Store { return memstore.NewWithClock(h.Now) }

func (h storeHarness) Flush(_ *testing.T, s dedupe.Store) { s.(*memstore.Store).Flush() }

type logHarness struct{ *clock }

func (h logHarness) Open(*testing.T) dedupe.Store { return memstore.NewLogWithClock(h.Now) }

func TestStore_BehavesAsDedupeStoreSays(t *testing.T) { storetest.Run(t, storeHarness{newClock()}) }

func TestLog_BehavesAsDedupeLogSays(t *testing.T) { storetest.Run(t, logHarness{newClock()}) }
