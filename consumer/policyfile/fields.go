package policyfile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/idemq/idemq/consumer"
)

// field is a name in the file and what it sets.
type field struct {
	name  string
	value value
}

// value reads a node of the file, and shows what is set in the file's own form, empty for nothing.
type value interface {
	read(r *reader, path string, n ast.Node)
	show() string
}

// fields is the whole file format: each field of p has its line here.
func fields(p *consumer.Policy) []field {
	return []field{
		{"version", version{}},
		{"handler_timeout", duration{&p.HandlerTimeout}},
		{"concurrency", integer{v: &p.Concurrency}},
		{"drain_timeout", duration{&p.DrainTimeout}},
		{"order", choice[consumer.Order]{&p.Order, []consumer.Order{consumer.OrderKey, consumer.OrderNone}}},
		{"after_letter", choice[consumer.AfterLetter]{&p.AfterLetter, []consumer.AfterLetter{consumer.GoOn, consumer.Block}}},
		{"on_halt", choice[consumer.OnHalt]{&p.OnHalt, []consumer.OnHalt{consumer.StopRunner, consumer.PausePartition}}},
		{"on_conflict", choice[consumer.Rejected]{&p.Conflict, []consumer.Rejected{consumer.DeadLetterIt, consumer.HaltOnIt}}},
		{"on_missing_id", choice[consumer.MissingID]{&p.MissingID, []consumer.MissingID{consumer.MissingIDDeadLetter, consumer.MissingIDUsePosition, consumer.MissingIDHalt}}},
		{"store_outage", choice[consumer.StoreOutage]{&p.StoreOutage, []consumer.StoreOutage{consumer.OutageWait, consumer.OutageProcessUnprotected}}},
		{"retry", section{
			{"attempts", integer{v: &p.Retry.Attempts, unlimited: true}},
			{"in_place", integer{v: &p.Retry.InPlace}},
			{"backoff", section{
				{"initial", duration{&p.Retry.Backoff.Initial}},
				{"factor", number{&p.Retry.Backoff.Factor}},
				{"max", duration{&p.Retry.Backoff.Max}},
				{"jitter", number{&p.Retry.Backoff.Jitter}},
			}},
			{"tiers", durations{&p.Retry.Tiers}},
			{"permanent", names{&p.Retry.Permanent}},
		}},
		{"busy", section{{"wait", duration{&p.Busy.Wait}}}},
		{"dead_letter", deadLetter{&p.DeadLetter}},
	}
}

// zero is the one answer to an explicit zero: in Go it means the default, in a file it looks like "none".
func zero(r *reader, path, text string) {
	r.bad(path, text, "does not mean none", "leave the field out for its default, or write the value you mean")
}

type version struct{}

func (version) read(r *reader, path string, n ast.Node) {
	if text, ok := r.scalar(path, n); ok && text != "1" {
		r.bad(path, text, "is not a version that this program reads", "write version: 1")
	}
}

func (version) show() string { return "1" }

type duration struct{ v *time.Duration }

func (d duration) read(r *reader, path string, n ast.Node) {
	text, ok := r.scalar(path, n)
	if !ok {
		return
	}
	v, err := time.ParseDuration(text)
	_, noNumber := strconv.ParseFloat(text, 64)
	switch {
	case noNumber == nil && strings.Trim(text, "+-0.") == "":
		zero(r, path, text)
	case noNumber == nil:
		r.bad(path, text, "is not a duration", fmt.Sprintf("add the unit: %ss or %sms", text, text))
	case err != nil:
		r.bad(path, text, "is not a duration", "write it like 500ms, 30s, 5m or 1h30m")
	case v == 0:
		zero(r, path, text)
	default:
		*d.v = v
	}
}

func (d duration) show() string { return d.v.String() }

type integer struct {
	v         *int
	unlimited bool // "unlimited" is a value
}

func (i integer) read(r *reader, path string, n ast.Node) {
	text, ok := r.scalar(path, n)
	if !ok {
		return
	}
	v, err := strconv.Atoi(text)
	switch {
	case i.unlimited && text == "unlimited":
		*i.v = consumer.Unlimited
	case err != nil && i.unlimited:
		r.bad(path, text, "is not a whole number", "write a number like 10, or unlimited")
	case err != nil:
		r.bad(path, text, "is not a whole number", "write a number like 10")
	case v == 0:
		zero(r, path, text)
	case i.unlimited && v == consumer.Unlimited:
		r.bad(path, text, "is not a number of attempts", "write unlimited if you mean it")
	default:
		*i.v = v
	}
}

func (i integer) show() string {
	if i.unlimited && *i.v == consumer.Unlimited {
		return "unlimited"
	}
	return strconv.Itoa(*i.v)
}

type number struct{ v *float64 }

func (f number) read(r *reader, path string, n ast.Node) {
	text, ok := r.scalar(path, n)
	if !ok {
		return
	}
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		r.bad(path, text, "is not a number", "write a number like 2 or 0.2")
	case v == 0:
		zero(r, path, text)
	default:
		*f.v = v
	}
}

func (f number) show() string { return strconv.FormatFloat(*f.v, 'g', -1, 64) }

type choice[T interface {
	comparable
	fmt.Stringer
}] struct {
	v   *T
	all []T
}

func (c choice[T]) read(r *reader, path string, n ast.Node) {
	text, ok := r.scalar(path, n)
	if !ok {
		return
	}
	var known []string
	for _, v := range c.all {
		if v.String() == text {
			*c.v = v
			return
		}
		known = append(known, v.String())
	}
	r.bad(path, text, "is no choice", "use "+strings.Join(known, " or "))
}

func (c choice[T]) show() string { return (*c.v).String() }

type durations struct{ v *[]time.Duration }

func (d durations) read(r *reader, path string, n ast.Node) {
	for i, item := range r.list(path, n, "[5s, 1m]") {
		var v time.Duration
		itemPath := fmt.Sprintf("%s[%d]", path, i)
		duration{&v}.read(r, itemPath, item)
		*d.v = append(*d.v, v)
	}
}

func (d durations) show() string {
	var s []string
	for _, v := range *d.v {
		s = append(s, v.String())
	}
	return flow(s)
}

type names struct{ v *[]string }

func (l names) read(r *reader, path string, n ast.Node) {
	for i, item := range r.list(path, n, "[unknown_sku]") {
		if text, ok := r.scalar(fmt.Sprintf("%s[%d]", path, i), item); ok {
			*l.v = append(*l.v, text)
		}
	}
}

func (l names) show() string {
	var s []string
	for _, v := range *l.v {
		s = append(s, strconv.Quote(v))
	}
	return flow(s)
}

func flow(items []string) string {
	if len(items) == 0 {
		return ""
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// deadLetter is "off", or a section with a topic, or a section with "off: true".
type deadLetter struct{ v *consumer.DeadLetterTo }

func (d deadLetter) read(r *reader, path string, n ast.Node) {
	if _, isMap := n.(ast.MapNode); isMap {
		section{{"topic", topic{&d.v.Topic}}, {"off", truth{&d.v.Off}}}.read(r, path, n)
		return
	}
	text, ok := r.scalar(path, n)
	switch {
	case !ok:
	case text == "off":
		d.v.Off = true
	default:
		r.bad(path, text, "is neither off nor a section", "write off, or {topic: NAME}")
	}
}

func (d deadLetter) show() string {
	switch {
	case d.v.Off:
		return "off"
	case d.v.Topic != "":
		return "{topic: " + strconv.Quote(d.v.Topic) + "}"
	}
	return ""
}

type topic struct{ v *string }

func (s topic) read(r *reader, path string, n ast.Node) {
	text, ok := r.scalar(path, n)
	if ok && text == "" {
		zero(r, path, text)
	}
	*s.v = text
}

func (s topic) show() string { return strconv.Quote(*s.v) }

type truth struct{ v *bool }

func (b truth) read(r *reader, path string, n ast.Node) {
	text, ok := r.scalar(path, n)
	switch {
	case !ok:
	case text == "true":
		*b.v = true
	default:
		r.bad(path, text, "is not true", "write true, or leave the field out")
	}
}

func (b truth) show() string { return strconv.FormatBool(*b.v) }

type section []field

func (s section) read(r *reader, path string, n ast.Node) { r.section(path, n, s) }

func (s section) show() string { return "" }
