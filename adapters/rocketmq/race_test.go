//go:build race

package rocketmq_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

// TestOrderly runs the tests of orderly consumption without the race detector, which finds races inside of the client; see orderly_test.go.
func TestOrderly(t *testing.T) {
	names := testenv.RocketMQ(t)
	cmd := exec.Command("go", "test", "-count=1", "-run=^TestOrderly_", ".")
	cmd.Env = append(os.Environ(), "IDEMQ_TEST_ROCKETMQ="+names)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
