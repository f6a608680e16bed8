package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/idemq/idemq/dedupe"
)

// report is what check and demo found out. Its JSON form is one object; these names are part of the program's interface.
type report struct {
	Orders        int     `json:"orders"`         // distinct ids in the topic
	Deliveries    int     `json:"deliveries"`     // demo: settled by the workers; check: records in the topic
	Applied       int     `json:"applied"`        // orders with a movement
	Duplicates    int     `json:"duplicates"`     // deliveries less applied less dead
	Dead          int     `json:"dead"`           // orders with a dead letter and no movement
	Lost          int     `json:"lost"`           // orders with neither, once nothing is pending
	Twice         int     `json:"twice"`          // movements too many
	NaiveTwice    int     `json:"naive_twice"`    // the same without deduplication. demo: measured; check: records less orders
	Pending       int64   `json:"pending"`        // records that are not acknowledged
	Unknown       int     `json:"unknown"`        // movements of orders that are not in the topic
	StockExpected int64   `json:"stock_expected"` // opening stock less the quantities of the applied orders
	StockActual   int64   `json:"stock_actual"`
	Guarantee     string  `json:"guarantee"` // the promise in one line
	Seconds       float64 `json:"seconds"`
}

// ledger is what was sent and what was parked, as read from the broker.
type ledger struct {
	orders  map[string]Order // by id
	records int
	letters map[string]bool // ids with a dead letter
	pending int64
}

// tally compares what was ordered with what took effect.
func tally(l ledger, b books) report {
	r := report{Orders: len(l.orders), Deliveries: l.records, Pending: l.pending}
	times := b.times()
	for _, s := range b.stock {
		r.StockExpected += s.Opening
		r.StockActual += s.Quantity
	}
	for id, n := range times {
		order, known := l.orders[id]
		if !known {
			r.Unknown += n
			continue
		}
		r.Applied++
		r.Twice += n - 1
		r.StockExpected -= order.Quantity
	}
	for id := range l.letters {
		if _, known := l.orders[id]; known && times[id] == 0 {
			r.Dead++
		}
	}
	if r.Pending == 0 {
		r.Lost = r.Orders - r.Applied - r.Dead
	}
	r.NaiveTwice = l.records - r.Orders
	r.Duplicates = r.Deliveries - r.Applied - r.Dead
	return r
}

// verdict is nil when all is well, wrong when something was lost or applied twice, another error when that is not known yet.
// logged and redis-only promise less than transactional: there a death at the wrong moment may repeat an effect, which is
// reported and is no error.
func (r report) verdict(mode dedupe.Mode) error {
	var found []string
	if r.Lost > 0 {
		found = append(found, fmt.Sprintf("%d orders lost", r.Lost))
	}
	if r.Twice > 0 && mode == dedupe.Transactional {
		found = append(found, fmt.Sprintf("%d effects too many", r.Twice))
	}
	if r.Twice == 0 && r.Unknown == 0 && r.Pending == 0 && r.StockActual != r.StockExpected {
		found = append(found, fmt.Sprintf("stock is %d and should be %d", r.StockActual, r.StockExpected))
	}
	switch {
	case len(found) > 0:
		return wrong{strings.Join(found, ", ")}
	case r.Pending > 0:
		return fmt.Errorf("check: %d messages are not settled yet; wait for them with --wait 60s, and see that consumers run", r.Pending)
	case r.Unknown > 0:
		return fmt.Errorf("check: %d movements belong to no order in the topic: it was made anew, or its records are past their retention; run reset", r.Unknown)
	}
	return nil
}

// writeJSON writes exactly one object and a newline.
func (r report) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// writeText is for people.
func (r report) writeText(w io.Writer) error {
	lines := []struct {
		what string
		n    int64
		note string
	}{
		{"orders placed", int64(r.Orders), fmt.Sprintf("in %s records", grouped(int64(r.Deliveries)))},
		{"applied", int64(r.Applied), ""},
		{"dead letters", int64(r.Dead), "refused for good, such as sold out"},
		{"lost", int64(r.Lost), ""},
		{"applied twice", int64(r.Twice), "effects too many"},
		{"pending", r.Pending, "not acknowledged"},
		{"stock expected", r.StockExpected, ""},
		{"stock actual", r.StockActual, ""},
	}
	var errs []error
	for _, l := range lines {
		_, err := fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-15s %10s  %s", l.what, grouped(l.n), l.note), " "))
		errs = append(errs, err)
	}
	_, err := fmt.Fprintf(w, "guarantee       %s\n", inDays(r.Guarantee))
	return errors.Join(append(errs, err)...)
}

var hours = regexp.MustCompile(`\b([0-9]+)h0m0s`)

// inDays writes 360h0m0s as 15 days.
func inDays(text string) string {
	return hours.ReplaceAllStringFunc(text, func(s string) string {
		n, err := strconv.Atoi(strings.TrimSuffix(s, "h0m0s"))
		if err != nil || n < 48 || n%24 != 0 {
			return s
		}
		return fmt.Sprintf("%d days", n/24)
	})
}

// grouped writes 12345 as 12,345.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
