package policyfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/consumer/policyfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// full has a value other than the default in every field that can have one beside the others.
func full() consumer.Policy {
	return consumer.Policy{
		HandlerTimeout: 10 * time.Second, Concurrency: 4, DrainTimeout: 15 * time.Second, Order: consumer.OrderNone,
		AfterLetter: consumer.Block, OnHalt: consumer.PausePartition, Conflict: consumer.HaltOnIt,
		MissingID: consumer.MissingIDUsePosition, StoreOutage: consumer.OutageProcessUnprotected,
		Retry: consumer.Retry{
			Attempts: 7, InPlace: 2, Backoff: consumer.Backoff{Initial: time.Second, Factor: 1.5, Max: time.Minute, Jitter: 0.5},
			Tiers: []time.Duration{5 * time.Second, time.Minute}, Permanent: []string{"unknown_sku", "a: [b]"},
		},
		Busy: consumer.Busy{Wait: time.Second}, DeadLetter: consumer.DeadLetterTo{Topic: "in: dlq"},
	}
}

const fullText = `
# what happens when a message cannot simply be applied
version: 1
handler_timeout: 10s
concurrency: 4
drain_timeout: 15s
order: none
on_halt: pause_partition
on_conflict: halt
on_missing_id: position
store_outage: process_unprotected
retry:
  attempts: 7
  in_place: 2
  backoff:
    initial: 1s
    factor: 1.5
    max: 1m
    jitter: 0.5
  tiers: [5s, 1m]
  permanent:
    - unknown_sku
    - "a: [b]"
busy: {wait: 1s}
dead_letter:
  topic: "in: dlq"
`

func TestParse_ReadsEveryField(t *testing.T) {
	p, err := policyfile.Parse("policy.yaml", []byte(fullText))
	require.NoError(t, err)
	want := full()
	want.AfterLetter = consumer.GoOn
	require.Equal(t, want, p)
}

// The Go struct and the file have the same fields: what the file format forgot would not come back.
func TestMarshal_EveryFieldOfTheStructComesBack(t *testing.T) {
	var leaves func(v reflect.Value, path string)
	leaves = func(v reflect.Value, path string) {
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				leaves(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
			return
		}
		require.False(t, v.IsZero() && path != "Policy.DeadLetter.Off", "%s is not set by the test", path)
	}
	leaves(reflect.ValueOf(full()), "Policy")

	for _, change := range []func(*consumer.Policy){
		func(p *consumer.Policy) { p.AfterLetter = consumer.GoOn },
		func(p *consumer.Policy) { p.Order = consumer.OrderKey; p.Retry.Tiers = nil },
		func(p *consumer.Policy) {
			p.AfterLetter = consumer.GoOn
			p.DeadLetter = consumer.DeadLetterTo{Off: true}
			p.Retry.Attempts = consumer.Unlimited
		},
		func(p *consumer.Policy) { *p = consumer.Policy{} },
	} {
		p := full()
		change(&p)
		text := policyfile.Marshal(p)
		got, err := policyfile.Parse("effective.yaml", text)
		require.NoError(t, err, "%s", text)
		require.Equal(t, p.Effective(), got.Effective(), "%s", text)
	}
}

func TestParse_AllProblemsAtOnceWithPlaceValueAndRemedy(t *testing.T) {
	_, err := policyfile.Parse("policy.yaml", []byte("version: 1\nhandler_timeot: 30s\nretry:\n  backoff:\n    initial:         5\n"))
	require.EqualError(t, err, `policy: policy.yaml: 2 problems
  2:1 handler_timeot: unknown field; did you mean handler_timeout?
  5:22 retry.backoff.initial: "5" is not a duration; add the unit: 5s or 5ms`)
	var all *policyfile.Error
	require.True(t, errors.As(err, &all))
	require.Equal(t, policyfile.Problem{Line: 5, Column: 22, Problem: consumer.Problem{Field: "retry.backoff.initial", Value: "5", Wrong: "is not a duration", Remedy: "add the unit: 5s or 5ms"}}, all.Problems[1])
}

func TestParse_Problems(t *testing.T) {
	for _, c := range []struct {
		name, text string // without its version
		want       []string
	}{
		{"nothing but the version", ``, nil},
		{"comments only", "# hello\n", nil},
		{"zero duration", "handler_timeout: 0\n", []string{`2:18 handler_timeout: "0" does not mean none; leave the field out for its default, or write the value you mean`}},
		{"zero with a unit", "busy:\n  wait: 0s\n", []string{`3:9 busy.wait: "0s" does not mean none`}},
		{"zero attempts", "retry: {attempts: 0}\n", []string{`2:19 retry.attempts: "0" does not mean none`}},
		{"zero jitter", "retry: {backoff: {jitter: 0.0}}\n", []string{`2:27 retry.backoff.jitter: "0.0" does not mean none`}},
		{"minus one attempts", "retry: {attempts: -1}\n", []string{`"-1" is not a number of attempts; write unlimited if you mean it`}},
		{"unknown unit", "drain_timeout: 15d\n", []string{`2:16 drain_timeout: "15d" is not a duration; write it like 500ms, 30s, 5m or 1h30m`}},
		{"negative", "drain_timeout: -5s\n", []string{`2:16 drain_timeout: "-5s" is too short; use at least 1ms`}},
		{"twice", "order: key\norder: none\n", []string{`3:1 order: is there twice; remove one; the first is on line 2`}},
		{"no choice", "order: Key\n", []string{`2:8 order: "Key" is no choice; use key or none`}},
		{"in the wrong section", "attempts: 3\n", []string{`2:1 attempts: unknown field; did you mean retry.attempts?`}},
		{"like nothing", "colour: red\n", []string{`2:1 colour: unknown field; known here: version, handler_timeout,`}},
		{"no value", "order:\n", []string{`2:1 order: has no value`}},
		{"a list for a value", "order: [key]\n", []string{`order: is a list; write one value`}},
		{"a section for a value", "order: {key: 1}\n", []string{`order: is a section; write one value`}},
		{"a value for a section", "retry: 3\n", []string{`2:8 retry: "3" is not a section`}},
		{"a value for a list", "order: none\nretry: {tiers: 5s}\n", []string{`3:16 retry.tiers: "5s" is not a list; write it like [5s, 1m]`}},
		{"an empty list", "retry: {permanent: []}\n", []string{`retry.permanent: is empty; leave the field out`}},
		{"one bad tier", "order: none\nretry: {tiers: [5s, 60, 1h]}\n", []string{`3:21 retry.tiers[1]: "60" is not a duration; add the unit: 60s or 60ms`}},
		{"tiers out of order", "order: none\nretry:\n  tiers:\n    - 1m\n    - 5s\n", []string{`6:7 retry.tiers[1]: "5s" is not longer than the tier before it, 1m0s`}},
		{"tiers with an order", "retry: {tiers: [5s]}\n", []string{`2:16 retry.tiers: "[5s]" break the order of keys: a waiting message is overtaken; write order: none`}},
		{"crossed bounds", "retry: {attempts: 2, in_place: 3}\n", []string{`2:32 retry.in_place: "3" is more than retry.attempts, 2`}},
		{"crossed with a default", "retry: {backoff: {max: 100ms}}\n", []string{`2:24 retry.backoff.max: "100ms" is less than retry.backoff.initial, 200ms`}},
		{"no consequence of what cannot be read", "retry: {backoff: {initial: 5, max: 100ms}}\n", []string{`2:28 retry.backoff.initial: "5" is not a duration`}},
		{"an unknown field hides nothing", "e: 1\nconcurrency: -4\n", []string{"2:1 e: unknown field", `3:14 concurrency: "-4" is out of range`}},
		{"fraction", "concurrency: 1.5\n", []string{`2:14 concurrency: "1.5" is not a whole number`}},
		{"dead letters: off", "dead_letter: off\n", nil},
		{"dead letters: off as a section", "dead_letter: {off: true}\n", nil},
		{"dead letters: off: false", "dead_letter: {off: false}\n", []string{`2:20 dead_letter.off: "false" is not true`}},
		{"dead letters: both", "dead_letter: {off: true, topic: x}\n", []string{`2:14 dead_letter: "x" is both a topic and off; choose one`}},
		{"dead letters: a name", "dead_letter: inventory.dlq\n", []string{`2:14 dead_letter: "inventory.dlq" is neither off nor a section; write off, or {topic: NAME}`}},
		{"dead letters: empty topic", "dead_letter: {topic: ''}\n", []string{`2:22 dead_letter.topic: does not mean none`}},
		{"anchor", "order: &a key\n", []string{`order: uses an anchor, an alias or a tag; write the value out`}},
		{"merge", "retry:\n  <<: {}\n", []string{`retry.<<: unknown field`}},
		{"block of text", "order: |\n  key\n", []string{`order: is not a single value`}},
		{"second document", "---\nversion: 1\n", []string{`YAML: is a second document`}},
		{"syntax", "retry: [\n", []string{`YAML: `}},
		{"not a mapping", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := policyfile.Parse("policy.yaml", []byte("version: 1\n"+c.text))
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			var all *policyfile.Error
			require.ErrorAs(t, err, &all)
			require.Len(t, all.Problems, len(c.want), "%v", err)
			for i, want := range c.want {
				require.Contains(t, all.Problems[i].Error(), want)
			}
			require.Equal(t, consumer.Policy{}, p)
		})
	}
}

func TestParse_Version_IsRequired(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "policy: p.yaml: 1 problem\n  1:1 version: is missing; begin the file with version: 1",
		"order: none":            "1:1 version: is missing",
		"version: 2":             `1:10 version: "2" is not a version that this program reads; write version: 1`,
		"- version: 1":           "is not a section",
		"version: 1.0":           `"1.0" is not a version`,
		"just text":              `policy: "just text" is not a section`,
		"version: 1\nversion: 1": "2:1 version: is there twice",
	} {
		_, err := policyfile.Parse("p.yaml", []byte(text))
		require.ErrorContains(t, err, want, "%q", text)
	}
}

func TestLoad_ReadsAFileAndNamesItInErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	_, err := policyfile.Load(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte("version: 1\norder: nome\n"), 0o600))
	_, err = policyfile.Load(path)
	require.ErrorContains(t, err, "policy: "+path+": 1 problem\n  2:8 order: \"nome\" is no choice")
	require.NoError(t, os.WriteFile(path, []byte(fullText), 0o600))
	p, err := policyfile.Load(path)
	require.NoError(t, err)
	require.Equal(t, 4, p.Concurrency)
}

func FuzzParse_NeverPanicsAndNeverReturnsAnInvalidPolicy(f *testing.F) {
	f.Add(fullText)
	f.Add("version: 1\nretry: {tiers: [5s, &a 1m, *a]}\n? [a]\n: b\n")
	f.Add("version: 1\n<<: *x\ndead_letter: !!str off\n")
	f.Add("\t")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := policyfile.Parse("fuzz.yaml", []byte(text))
		if err != nil {
			var all *policyfile.Error
			require.ErrorAs(t, err, &all)
			require.NotEmpty(t, all.Problems)
			for _, one := range all.Problems {
				require.Positive(t, one.Line)
				require.Positive(t, one.Column)
				require.NotEmpty(t, one.Field)
			}
			require.True(t, strings.HasPrefix(err.Error(), "policy: fuzz.yaml: "))
			return
		}
		require.Empty(t, p.Validate())
		again, err := policyfile.Parse("again.yaml", policyfile.Marshal(p))
		require.NoError(t, err, "%s", policyfile.Marshal(p))
		require.Equal(t, p.Effective(), again.Effective())
	})
}
