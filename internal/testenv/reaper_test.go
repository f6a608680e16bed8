package testenv_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/testenv"
)

// childEnv tells this test program, run once more, how to end after it has started servers.
const childEnv = "IDEMQ_TESTENV_CHILD"

func TestReaper_CleansUpHoweverTheProcessEnds(t *testing.T) {
	if end := os.Getenv(childEnv); end != "" {
		child(t, end)
	}
	testenv.OwnRedis(t) // skips
	for _, end := range []string{"exit", "panic", "kill"} {
		t.Run(end, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$")
			cmd.Env = append(os.Environ(), childEnv+"="+end, "TMPDIR="+t.TempDir())
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			lines := bufio.NewScanner(out)
			require.True(t, lines.Scan())
			addrs := strings.Fields(lines.Text())
			require.Len(t, addrs, 2, lines.Text())
			require.Error(t, cmd.Wait())
			for _, addr := range addrs {
				require.Eventually(t, func() bool { return refused(addr) }, 20*time.Second, 20*time.Millisecond, addr)
			}
			require.Eventually(t, func() bool {
				left, err := os.ReadDir(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "TMPDIR="))
				return err == nil && len(left) == 0
			}, 20*time.Second, 20*time.Millisecond)
		})
	}
}

func child(t *testing.T, end string) {
	fmt.Println(testenv.OwnRedis(t).Addr, testenv.OwnRedis(t).Addr)
	switch end {
	case "exit":
		os.Exit(3)
	case "panic":
		panic("as a test may")
	case "kill":
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	}
}

func refused(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	return err != nil || conn.Close() != nil
}
