package testenv_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

func TestVia_DockerIsReallyAContainer(t *testing.T) {
	if os.Getenv("IDEMQ_TEST_VIA") != "docker" {
		t.Skip("IDEMQ_TEST_VIA is not docker")
	}
	testenv.Docker(t)
	info, err := redisAt(t, testenv.Redis(t)).Info(t.Context(), "server").Result()
	require.NoError(t, err)
	require.Contains(t, info, "process_id:1\r\n")
}
