package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRatios_AreOfMedians(t *testing.T) {
	in := `goos: linux
BenchmarkTransactional/bare-2     100   1000000 ns/op
BenchmarkTransactional/bare-2     100   9000000 ns/op
BenchmarkTransactional/bare-2     100   2000000 ns/op
BenchmarkTransactional/row-2      100   3000000 ns/op
`
	var out bytes.Buffer
	require.NoError(t, run(strings.NewReader(in), &out))
	require.Contains(t, out.String(), in)
	require.Regexp(t, `Transactional : bare business transaction +1\.50   \(3\.00 ms : 2\.00 ms\)`, out.String())
	require.Regexp(t, `claim in Redis : SET NX +not measured`, out.String())
}

func TestRatios_NoBenchmarkIsAnError(t *testing.T) {
	require.Error(t, run(strings.NewReader("FAIL\n"), new(bytes.Buffer)))
}
