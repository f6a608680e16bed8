package consumer

import (
	"fmt"
	"slices"
	"time"
)

// Problem is one thing wrong with a policy.
type Problem struct {
	Field  string // as in YAML: "retry.backoff.max"
	Value  string
	Wrong  string
	Remedy string
}

// Error is `field: "value" wrong; remedy`.
func (p Problem) Error() string {
	s := p.Field + ": "
	if p.Value != "" {
		s += fmt.Sprintf("%q ", p.Value)
	}
	s += p.Wrong
	if p.Remedy != "" {
		s += "; " + p.Remedy
	}
	return s
}

// maxDuration bounds what is surely a slip of units.
const maxDuration = 7 * 24 * time.Hour

type problems []Problem

func (ps *problems) add(field string, value any, wrong, remedy string) {
	*ps = append(*ps, Problem{Field: field, Value: fmt.Sprint(value), Wrong: wrong, Remedy: remedy})
}

func (ps *problems) duration(field string, d, least, most time.Duration) {
	switch {
	case d < least:
		ps.add(field, d, "is too short", fmt.Sprintf("use at least %v", least))
	case d > most:
		ps.add(field, d, "is too long", fmt.Sprintf("use at most %v", most))
	}
}

func (ps *problems) choice(field string, v fmt.Stringer) {
	if v.String() == "unknown" {
		ps.add(field, fmt.Sprintf("%d", v), "is no choice", "use one of the named constants")
	}
}

// Validate lists all problems, in the order of the fields. Zero fields are judged by their defaults.
func (p Policy) Validate() []Problem {
	given := p
	p = p.Effective()
	var ps problems
	ps.duration("handler_timeout", p.HandlerTimeout, time.Millisecond, maxDuration)
	if p.Concurrency < 1 || p.Concurrency > 100_000 {
		ps.add("concurrency", p.Concurrency, "is out of range", "use 1 to 100000")
	}
	ps.duration("drain_timeout", p.DrainTimeout, time.Millisecond, maxDuration)
	ps.choice("order", p.Order)
	ps.choice("after_letter", p.AfterLetter)
	ps.choice("on_halt", p.OnHalt)
	ps.choice("on_conflict", p.Conflict)
	ps.choice("on_missing_id", p.MissingID)
	ps.choice("store_outage", p.StoreOutage)
	if p.AfterLetter == Block && p.Order == OrderNone {
		ps.add("after_letter", p.AfterLetter, "needs an order to keep", "use order: key, or after_letter: go_on")
	}
	p.Retry.validate(&ps, given.Retry, p.Order)
	ps.duration("busy.wait", p.Busy.Wait, time.Millisecond, maxDuration)
	if p.DeadLetter.Off && p.DeadLetter.Topic != "" {
		ps.add("dead_letter", p.DeadLetter.Topic, "is both a topic and off", "choose one")
	}
	return ps
}

// validate judges r, the effective one; given is as it was written.
func (r Retry) validate(ps *problems, given Retry, order Order) {
	limited := r.Attempts != Unlimited
	if r.Attempts < 1 && limited {
		ps.add("retry.attempts", r.Attempts, "is out of range", "use 1 or more, or unlimited")
		limited = false
	}
	switch {
	case r.InPlace < 1:
		ps.add("retry.in_place", r.InPlace, "is out of range", "use 1 or more: the first attempt is one of them")
	case limited && r.InPlace > r.Attempts:
		ps.add("retry.in_place", r.InPlace, fmt.Sprintf("is more than retry.attempts, %d", r.Attempts), "lower it or raise retry.attempts")
	}
	b := r.Backoff
	ps.duration("retry.backoff.initial", b.Initial, time.Millisecond, maxDuration)
	if !(b.Factor >= 1 && b.Factor <= 100) { // NaN is out of range too
		ps.add("retry.backoff.factor", b.Factor, "is out of range", "use 1 to 100; 1 is a constant delay")
	}
	ps.duration("retry.backoff.max", b.Max, time.Millisecond, maxDuration)
	if b.Max < b.Initial && b.Max >= time.Millisecond {
		ps.add("retry.backoff.max", b.Max, fmt.Sprintf("is less than retry.backoff.initial, %v", b.Initial), "raise it or lower retry.backoff.initial")
	}
	if !(b.Jitter >= 0 && b.Jitter <= 1) {
		ps.add("retry.backoff.jitter", b.Jitter, "is out of range", "use a share of the delay up to 1, such as 0.2")
	}
	r.validateTiers(ps, given, order, limited)
	for i, n := range r.Permanent {
		switch {
		case n == "":
			ps.add(fmt.Sprintf("retry.permanent[%d]", i), "", "is empty", "name an error of Config.Errors")
		case slices.Index(r.Permanent, n) < i:
			ps.add(fmt.Sprintf("retry.permanent[%d]", i), n, "is there twice", "remove one")
		}
	}
}

func (r Retry) validateTiers(ps *problems, given Retry, order Order, limited bool) {
	for i, t := range r.Tiers {
		field := fmt.Sprintf("retry.tiers[%d]", i)
		ps.duration(field, t, 100*time.Millisecond, maxDuration)
		if i > 0 && t <= r.Tiers[i-1] {
			ps.add(field, t, fmt.Sprintf("is not longer than the tier before it, %v", r.Tiers[i-1]), "list tiers from short to long")
		}
	}
	switch {
	case len(r.Tiers) == 0:
	case order == OrderKey:
		ps.add("retry.tiers", r.Tiers, "break the order of keys: a waiting message is overtaken", "write order: none if handlers do not need the order, or remove the tiers")
	case limited && r.InPlace >= r.Attempts:
		remedy := "lower retry.in_place or raise retry.attempts"
		if given.InPlace == 0 {
			remedy = fmt.Sprintf("raise retry.attempts over %d, or set retry.in_place", r.InPlace)
		}
		ps.add("retry.tiers", r.Tiers, fmt.Sprintf("are never used: retry.in_place, %d, uses up all attempts", r.InPlace), remedy)
	}
}
