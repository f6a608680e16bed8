//go:build race

package rocketmq_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

// TestWhereTheClientRaces runs, without the race detector, the tests of what it finds races in that are the client's own; see orderly_test.go.
func TestWhereTheClientRaces(t *testing.T) {
	names := testenv.RocketMQ(t)
	cmd := exec.Command("go", "test", "-count=1", "-run=^Test(Orderly|Expired)_", ".")
	cmd.Env = append(os.Environ(), "IDEMQ_TEST_ROCKETMQ="+names)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
