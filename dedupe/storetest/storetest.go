// Package storetest is the behaviour that every dedupe.Store has, as tests, and wrappers that make any store fail.
//
// Run takes what makes fresh stores and checks every sentence of the comments of dedupe.Store, and of dedupe.Log and dedupe.Memory if
// the store is one: a table of all states and operations, each failure that others met, concurrent claims, and random histories
// against memstore. Each subtest is named by the sentence that it shows.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, harness{db})
//	}
//
// Random histories draw a seed, which a failure prints; the environment variable STORETEST_SEED makes it the same again.
//
// Faults makes calls fail before or after they took effect, or take effect late, for tests of what uses a store.
//
// The package needs the standard library and memstore only.
package storetest

import (
	"testing"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Harness makes the stores that Run tests. Nothing else may use them during Run: it purges, and gives a log new incarnations.
type Harness interface {
	// Open returns a store that is ready to use. It may be the same each time: Run uses a new scope for each subtest. What has to be
	// closed is closed by t.Cleanup.
	Open(t *testing.T) dedupe.Store
	// Advance lets d pass by the store's clock: it moves the clock, or waits. Run asks for some tens of milliseconds at a time.
	Advance(t *testing.T, d time.Duration)
}

// Flusher is a Harness of a dedupe.Memory that can make it lose what it knows. Without it the behaviour after a loss is skipped.
type Flusher interface {
	// Flush empties the memory behind s, marks of Remember included, and leaves s in use.
	Flush(t *testing.T, s dedupe.Store)
}

// kind says which stores have a behaviour.
type kind uint8

const (
	every  kind = iota
	told        // told what a log knows: every Store that is no Log
	log         // dedupe.Log
	memory      // dedupe.Memory
)

// behaviour is one sentence about stores, and the test that shows it.
type behaviour struct {
	of   kind
	name string
	test func(t *testing.T, s *subject)
}

// Run checks that the stores of h behave as dedupe.Store says. Subtests run one after another.
func Run(t *testing.T, h Harness) {
	probe := open(t, h)
	for _, group := range []struct {
		name       string
		behaviours []behaviour
	}{
		{"moves", moves},
		{"claim", claims},
		{"settle", settling},
		{"unclaimed", unclaimed},
		{"requests", requests},
		{"keys and values", keysAndValues},
		{"learn", learning},
		{"operator", operator},
		{"log", logs},
		{"purge", purging},
		{"memory", memories},
		{"concurrency", concurrency},
		{"histories", histories},
		{"failures others met", othersMet},
	} {
		var has []behaviour
		for _, b := range group.behaviours {
			if probe.is(b.of) {
				has = append(has, b)
			}
		}
		if len(has) == 0 {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for _, b := range has {
				t.Run(b.name, func(t *testing.T) { b.test(t, open(t, h)) })
			}
		})
	}
}
