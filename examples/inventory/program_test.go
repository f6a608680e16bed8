package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// embeddedFlags starts a broker and a Redis and returns the flags that point to them and to a new SQLite file.
func embeddedFlags(t *testing.T, mode string) []string {
	t.Helper()
	e, err := startEmbedded(time.Second)
	require.NoError(t, err)
	t.Cleanup(e.close)
	return []string{
		"--brokers", strings.Join(e.kafka.ListenAddrs(), ","), "--redis", e.redisURL(), "--db", "sqlite:" + filepath.Join(t.TempDir(), "inventory.db"),
		"--mode", mode, "--session", "1s", "--lease", "3s", "--workers", "4",
	}
}

// succeed runs a command that must exit with 0 and returns what it wrote to stdout.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	out, err, status := command(t, args...)
	require.Zero(t, status, "%v: %s", args, err)
	return out
}

func with(command string, flags []string, more ...string) []string {
	return append(append([]string{command}, flags...), more...)
}

func TestProgram_ResetProduceConsumeCheck_InEachMode(t *testing.T) {
	for _, mode := range []string{"transactional", "logged", "redis-only"} {
		t.Run(mode, func(t *testing.T) {
			flags := embeddedFlags(t, mode)
			succeed(t, with("reset", flags, "--stock", "120", "--skus", "5")...)
			succeed(t, with("produce", flags, "--orders", "200", "--duplicates", "0.5", "--skus", "5")...)

			out, _, status := command(t, with("check", flags, "--json")...)
			require.Equal(t, exitNoReply, status, "nothing consumed yet: no verdict")
			got := oneObject(t, []byte(out))
			require.Positive(t, got["pending"])
			require.Zero(t, got["lost"])

			ctx, stop := context.WithCancel(t.Context())
			var log bytes.Buffer
			ended := make(chan int, 1)
			go func() { ended <- run(ctx, with("consume", flags), &log, &log) }()
			got = oneObject(t, []byte(succeed(t, with("check", flags, "--json", "--wait", "30s")...)))
			stop()
			require.Zero(t, <-ended, "consume: %s", &log)

			require.EqualValues(t, 200, got["orders"])
			require.Zero(t, got["lost"])
			require.Zero(t, got["twice"])
			require.Zero(t, got["pending"])
			require.Positive(t, got["dead"], "the last article sells out")
			require.EqualValues(t, 200, got["applied"].(float64)+got["dead"].(float64))
			require.Equal(t, got["naive_twice"], got["duplicates"])
			require.Equal(t, got["stock_expected"], got["stock_actual"])
			require.Contains(t, got["guarantee"], mode)
			require.Contains(t, succeed(t, with("check", flags)...), "lost                     0")

			// Everything can begin again, in the same group.
			succeed(t, with("reset", flags, "--stock", "120", "--skus", "5")...)
			got = oneObject(t, []byte(succeed(t, with("check", flags, "--json")...)))
			require.Zero(t, got["orders"])
			require.Zero(t, got["applied"])
		})
	}
}

func TestReset_OtherMode_IsTakenUpByTheSameGroup(t *testing.T) {
	flags := embeddedFlags(t, "transactional")
	succeed(t, with("reset", flags)...)
	other := append([]string{}, flags...)
	other = append(other, "--mode", "logged")
	_, stderr, status := command(t, with("check", other)...)
	require.Equal(t, exitNoReply, status)
	require.Contains(t, stderr, "or run reset")
	succeed(t, with("reset", other)...)
	succeed(t, with("check", other)...)
}

func TestConsume_WithoutReset_SaysWhatToRun(t *testing.T) {
	flags := embeddedFlags(t, "transactional")
	empty := filepath.Join(t.TempDir(), "empty.db")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	_, stderr, status := command(t, with("consume", flags, "--db", "sqlite:"+empty)...)
	require.Equal(t, exitNoReply, status)
	require.Contains(t, stderr, "run reset first")
}

func TestConsume_MissingTopic_IsNamed(t *testing.T) {
	flags := embeddedFlags(t, "transactional")
	succeed(t, with("reset", flags)...)
	_, stderr, status := command(t, with("consume", flags, "--topic", "odrers")...)
	require.Equal(t, exitNoReply, status)
	last := stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:]
	require.Contains(t, last, "inventory: ", "the last line says why it ended: %s", stderr)
	require.Contains(t, last, `"odrers"`)
	require.Contains(t, last, "or run reset")
}

// TestConsume_SIGTERM_DrainsAndExitsWithZero runs the real program as a process.
func TestConsume_SIGTERM_DrainsAndExitsWithZero(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGTERM there")
	}
	flags := embeddedFlags(t, "transactional")
	succeed(t, with("reset", flags)...)
	succeed(t, with("produce", flags, "--orders", "300")...)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe, with("consume", flags)...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var log bytes.Buffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	succeed(t, with("check", flags, "--wait", "30s")...)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "%s", &log)
}

// TestDemo_ShortRun_LosesNothingAppliesNothingTwiceAndTheNaiveConsumerDoes runs the whole demonstration with its processes.
func TestDemo_ShortRun_LosesNothingAppliesNothingTwiceAndTheNaiveConsumerDoes(t *testing.T) {
	if testing.Short() {
		t.Skip("runs worker processes for about 20 s; left out by -short")
	}
	t.Setenv(asProgram, "1")                      // for the workers
	t.Setenv("INVENTORY_POLICY", "/nowhere.yaml") // the demo is not led astray by settings for real services
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	stdout, stderr, status := command(t, "demo", "--json", "--orders", "600")
	require.Zero(t, status, stderr)
	got := oneObject(t, []byte(stdout))
	require.EqualValues(t, 600, got["orders"])
	require.Zero(t, got["lost"])
	require.Zero(t, got["twice"])
	require.Zero(t, got["pending"])
	require.Positive(t, got["naive_twice"])
	require.Positive(t, got["dead"])
	require.Equal(t, got["stock_expected"], got["stock_actual"])
	require.GreaterOrEqual(t, got["deliveries"], 2*got["orders"].(float64), "everything came at least twice")
	for _, step := range []string{"SIGKILL", "joins", "has left", "wiped", "Redis is dead", "once more", "Redis is back"} {
		require.Contains(t, stderr, step)
	}
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "the demo leaves nothing behind")
}

func TestDemo_Interrupted_LeavesNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("runs worker processes; left out by -short")
	}
	t.Setenv(asProgram, "1")
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(t.Context())
	out := &lookout{want: "are being placed", seen: cancel}
	var stderr bytes.Buffer
	require.Equal(t, exitNoReply, run(ctx, []string{"demo"}, out, &stderr))
	require.Contains(t, stderr.String(), "interrupted")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left)
}

// lookout calls seen when what is written contains want.
type lookout struct {
	bytes.Buffer
	want string
	seen func()
}

func (l *lookout) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(l.want)) {
		l.seen()
	}
	return l.Buffer.Write(p)
}

func TestLineWriter_EachLine_IsOneObject(t *testing.T) {
	var buf bytes.Buffer
	l := &lineWriter{enc: json.NewEncoder(&buf)}
	l.write()
	l.write()
	require.Equal(t, strings.Repeat(fmt.Sprintln(`{"verdict":"claimed"}`), 2), buf.String())
}
