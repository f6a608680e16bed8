// Package policyfile reads consumer.Policy from YAML and says where each mistake is.
//
// A file has the fields of consumer.Policy in lower case with underscores, and a version:
//
//	version: 1
//	handler_timeout: 30s
//	concurrency: 16
//	drain_timeout: 20s
//	order: key             # key, none
//	after_letter: go_on    # go_on, block
//	on_halt: stop          # stop, pause_partition
//	on_conflict: dead_letter   # dead_letter, halt
//	on_missing_id: dead_letter # dead_letter, position, halt
//	store_outage: wait     # wait, process_unprotected
//	retry:
//	  attempts: 10         # or unlimited
//	  in_place: 3
//	  backoff: {initial: 200ms, factor: 2, max: 30s, jitter: 0.2}
//	  tiers: [5s, 1m]      # needs order: none
//	  permanent: [unknown_sku]
//	busy: {wait: 5s}
//	dead_letter: {topic: inventory.dlq} # or off
//
// Everything but the version may be left out, and has the default that consumer.Policy states then. Nothing is guessed: durations need a
// unit; an explicit zero, an unknown field, a field that is there twice, and bounds that cross are errors. All problems are reported at once.
package policyfile

import (
	"fmt"
	"os"
	"strings"

	"github.com/idemq/idemq/consumer"
)

// Load reads a file. The error is an *Error with all problems, or that of reading the file. The policy of a file with problems is zero.
func Load(path string) (consumer.Policy, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return consumer.Policy{}, fmt.Errorf("policy: %w", err)
	}
	return Parse(path, text)
}

// Parse reads text; name stands for it in errors. The error is an *Error.
func Parse(name string, text []byte) (consumer.Policy, error) {
	var p consumer.Policy
	r := reader{at: map[string]position{}}
	r.document(text, fields(&p))
	r.check(p)
	if len(r.problems) > 0 {
		return consumer.Policy{}, &Error{File: name, Problems: r.sorted()}
	}
	return p, nil
}

// Problem is one mistake and its place: line and column from 1, where the value is, or the field if it is about that.
type Problem struct {
	Line, Column int
	consumer.Problem
}

// Error is "line:column field: value wrong; remedy".
func (p Problem) Error() string { return fmt.Sprintf("%d:%d %s", p.Line, p.Column, p.Problem.Error()) }

// Error lists all problems of a file, in the order of their places.
type Error struct {
	File     string
	Problems []Problem
}

// Error has a line for each problem.
func (e *Error) Error() string {
	var b strings.Builder
	plural := "s"
	if len(e.Problems) == 1 {
		plural = ""
	}
	fmt.Fprintf(&b, "policy: %s: %d problem%s", e.File, len(e.Problems), plural)
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.Error())
	}
	return b.String()
}

// Marshal writes the effective policy of p as a file that Parse reads to an equal effective policy. p is valid.
func Marshal(p consumer.Policy) []byte {
	p = p.Effective()
	var b strings.Builder
	writeFields(&b, fields(&p), "")
	return []byte(b.String())
}

func writeFields(b *strings.Builder, fs []field, indent string) {
	for _, f := range fs {
		if s, ok := f.value.(section); ok {
			b.WriteString(indent + f.name + ":\n")
			writeFields(b, s, indent+"  ")
			continue
		}
		if text := f.value.show(); text != "" {
			b.WriteString(indent + f.name + ": " + text + "\n")
		}
	}
}
