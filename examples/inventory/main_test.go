package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/internal/testenv"
)

// asProgram makes the test binary behave as the program: the demo runs itself again as its workers.
const asProgram = "IDEMQ_EXAMPLE_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what a nil Logger means
	goleak.VerifyTestMain(thenShutdown{m})
}

// thenShutdown stops the services that the tests started, before goroutines are counted.
type thenShutdown struct{ *testing.M }

func (m thenShutdown) Run() int { return testenv.Main(m.M) }

// command runs the program and returns what it wrote and its exit status.
func command(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, err bytes.Buffer
	status = run(context.Background(), args, &out, &err)
	return out.String(), err.String(), status
}

func TestFlags_WrongValues_NameFieldValueAndRemedy(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"no database", []string{"consume"}, []string{"--db: missing", "sqlite:inventory.db", "INVENTORY_DB"}},
		{"redis-only without redis", []string{"check", "--db", "sqlite:x", "--mode", "redis-only"}, []string{"--redis: missing", "redis://127.0.0.1:6379"}},
		{"unknown mode", []string{"consume", "--mode", "magic"}, []string{"--mode", `"magic"`, "transactional, logged or redis-only"}},
		{"broker without port", []string{"produce", "--brokers", "localhost"}, []string{`--brokers "localhost"`, "HOST:PORT"}},
		{"unknown broker", []string{"produce", "--broker", "pigeon"}, []string{"--broker", `"kafka"`, `"pigeon"`}},
		{"bad group", []string{"produce", "--group", "a b"}, []string{`--group "a b"`, "letters, digits"}},
		{"share over one", []string{"produce", "--duplicates", "30"}, []string{"--duplicates 30", "0 to 1"}},
		{"share that is no number", []string{"produce", "--duplicates", "NaN"}, []string{"--duplicates NaN", "0 to 1"}},
		{"no orders", []string{"produce", "--orders", "0"}, []string{"--orders 0", "at least 1"}},
		{"negative rate", []string{"produce", "--rate=-1"}, []string{"--rate -1", "as fast as"}},
		{"session without a unit", []string{"consume", "--session", "6"}, []string{"--session", `"6"`}},
		{"no lease", []string{"consume", "--db", "sqlite:x", "--lease", "0s"}, []string{"--lease 0s", "positive"}},
		{"no workers", []string{"consume", "--db", "sqlite:x", "--workers=-1"}, []string{"--workers -1", "at least 1"}},
		{"a negative value is a value", []string{"consume", "--db", "sqlite:x", "--workers", "-1"}, []string{"--workers -1: at least 1"}},
		{"unknown command", []string{"consum"}, []string{`unknown command "consum"`, "demo, reset, produce, consume, check"}},
		{"no policy file", []string{"reset", "--db", "sqlite:x", "--policy", "plicy.yaml"}, []string{`--policy "plicy.yaml": there is no such file`}},
		{"no partitions", []string{"reset", "--db", "sqlite:x", "--partitions", "0"}, []string{"--partitions 0", "at least 1"}},
		{"negative wait", []string{"check", "--db", "sqlite:x", "--wait=-1s"}, []string{"--wait -1s", "negative"}},
		{"demo without articles", []string{"demo", "--orders", "0"}, []string{"--orders 0", "at least 1"}},
		{"unknown flag", []string{"check", "--jsn"}, []string{"--jsn", "--json"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, stderr, status := command(t, tt.args...)
			require.Equal(t, exitNoReply, status)
			for _, want := range tt.want {
				require.Contains(t, stderr, want)
			}
		})
	}
}

func TestFlags_SeveralProblems_AreListedAtOnce(t *testing.T) {
	_, stderr, _ := command(t, "consume", "--brokers", "here,there:9092", "--topic=", "--workers=-1")
	require.Contains(t, stderr, "4 wrong or missing settings")
	require.Contains(t, stderr, `--brokers "here"`)
	require.NotContains(t, stderr, `"there:9092"`)
	require.Contains(t, stderr, "--topic")
	require.Contains(t, stderr, "--db")
	require.Contains(t, stderr, "--workers -1")
}

func TestFlags_OneProblem_IsOneLine(t *testing.T) {
	_, stderr, status := command(t, "produce", "--orders", "0")
	require.Equal(t, exitNoReply, status)
	require.Equal(t, "inventory: --orders 0: at least 1\n", stderr)
}

func TestFlags_HelpOfACommand_ShowsTheFlagsThatApply(t *testing.T) {
	help := func(command string) string {
		cmd := exec.Command(os.Args[0], command, "--help")
		cmd.Env = append(os.Environ(), asProgram+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	require.NotContains(t, help("produce"), "--db")
	require.Contains(t, help("produce"), "--topic")
	require.NotContains(t, help("check"), "--session")
	require.Contains(t, help("consume"), "--session")
}

func TestDB_SQLiteFileThatIsNotThere_IsMadeByResetOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "typo.db")
	for _, name := range []string{"consume", "check"} {
		_, stderr, status := command(t, name, "--db", "sqlite:"+file)
		require.Equal(t, exitNoReply, status)
		require.Contains(t, stderr, "there is no such file")
		require.Contains(t, stderr, "reset")
		require.NoFileExists(t, file)
	}
}

func TestFlags_ByEnvironment_AreNamedWithTheirVariable(t *testing.T) {
	t.Setenv("INVENTORY_LEASE", "12")
	_, stderr, status := command(t, "consume", "--db", "sqlite:x")
	require.Equal(t, exitNoReply, status)
	require.Contains(t, stderr, "INVENTORY_LEASE")
	require.Contains(t, stderr, `"12"`)
}

func TestFlags_OnTheCommandLine_WinOverTheEnvironment(t *testing.T) {
	t.Setenv("INVENTORY_BROKERS", "nowhere")
	t.Setenv("INVENTORY_GROUP", "bad group")
	_, stderr, _ := command(t, "produce", "--brokers", "127.0.0.1:1", "--orders", "0")
	require.NotContains(t, stderr, "nowhere")
	require.Contains(t, stderr, "bad group")
}

func TestProduce_NoBroker_IsOneClearLine(t *testing.T) {
	_, stderr, status := command(t, "produce", "--brokers", "127.0.0.1:1", "--orders", "1")
	require.Equal(t, exitNoReply, status)
	require.Contains(t, stderr, "127.0.0.1:1")
	require.Contains(t, stderr, "is a broker there")
}

func TestPolicyFile_OfTheExample_IsValid(t *testing.T) {
	p, err := services{Policy: "policy.yaml", Workers: 3}.policy()
	require.NoError(t, err)
	require.Equal(t, 10*time.Second, p.HandlerTimeout)
	require.Equal(t, 3, p.Concurrency, "--workers wins")
	require.Empty(t, p.Validate())
}
