// Command ratios reads the output of `go test -bench` and prints, beside it, how the benchmarks that belong together compare:
// medians of one run, as ratios.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// pair says which two benchmarks are compared. A ratio of 2 means that what takes twice as long as base.
type pair struct{ title, what, base string }

var pairs = []pair{
	{"claim in Redis : durable PostgreSQL unique insert", "BenchmarkClaim/redis", "BenchmarkClaim/postgres-insert"},
	{"claim and completion in Redis : durable PostgreSQL unique insert", "BenchmarkClaim/redis-and-complete", "BenchmarkClaim/postgres-insert"},
	{"claim in Redis : SET NX", "BenchmarkClaim/redis", "BenchmarkClaim/redis-setnx"},
	{"Transactional : bare business transaction", "BenchmarkTransactional/row", "BenchmarkTransactional/bare"},
	{"Transactional with Redis : bare business transaction", "BenchmarkTransactional/row-and-redis", "BenchmarkTransactional/bare"},
	{"duplicate stopped by Redis : bare business transaction", "BenchmarkTransactional/duplicate-in-redis", "BenchmarkTransactional/bare"},
	{"Logged : bare business transaction", "BenchmarkTransactional/logged", "BenchmarkTransactional/bare"},
	{"pipeline, memory store : bare handler in the same loop", "BenchmarkPipeline/memory", "BenchmarkPipeline/bare"},
}

var line = regexp.MustCompile(`^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op`)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(1)
	}
}

// run copies in to out and adds the ratios. No benchmark at all is an error: something failed before.
func run(in io.Reader, out io.Writer) error {
	times := map[string][]float64{}
	sc := bufio.NewScanner(in)
	for sc.Scan() {
		fmt.Fprintln(out, sc.Text())
		if m := line.FindStringSubmatch(sc.Text()); m != nil {
			ns, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return fmt.Errorf("line %q: %w", sc.Text(), err)
			}
			times[m[1]] = append(times[m[1]], ns)
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	if len(times) == 0 {
		return fmt.Errorf("no benchmark in the input")
	}
	fmt.Fprintln(out, "\nRatios of one run (medians):")
	for _, p := range pairs {
		what, base := median(times[p.what]), median(times[p.base])
		if what == 0 || base == 0 {
			fmt.Fprintf(out, "  %-66s not measured\n", p.title)
			continue
		}
		fmt.Fprintf(out, "  %-66s %7.2f   (%s : %s)\n", p.title, what/base, nanos(what), nanos(base))
	}
	return nil
}

func median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	return xs[len(xs)/2]
}

func nanos(ns float64) string {
	switch {
	case ns >= 1e6:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%.1f us", ns/1e3)
	}
	return fmt.Sprintf("%.0f ns", ns)
}
