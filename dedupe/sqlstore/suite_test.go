package sqlstore_test

import (
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/storetest"
)

// harness is one log for the whole suite; its clock is the database's.
type harness struct{ log dedupe.Log }

func (h harness) Open(*testing.T) dedupe.Store { return h.log }

// Advance waits, which is how time passes in a database. The suite waits for leases to end and never hopes that one still lives.
func (harness) Advance(_ *testing.T, d time.Duration) { time.Sleep(d) }

func TestLog_BehavesAsDedupeLogSays(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, _ := d.migrated(t)
		storetest.Run(t, harness{l})
	})
}
