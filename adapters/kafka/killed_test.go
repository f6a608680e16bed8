package kafka_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/adapters/kafka"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/testenv"
)

// TestMember is no test: it is the process that TestTrap55 kills. It appends a line to a file for each effect.
func TestMember(t *testing.T) {
	args := strings.Fields(os.Getenv("IDEMQ_TEST_MEMBER"))
	if len(args) != 4 {
		t.Skip("a helper process of TestTrap55")
	}
	f, err := os.OpenFile(args[3], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	g, err := dedupe.New(dedupe.Config{Scope: "shop", Mode: dedupe.Logged, Log: memstore.NewLog()})
	require.NoError(t, err)
	p, err := consumer.NewPipeline(consumer.Config{Guard: g, ID: consumer.IDFromHeader(kafka.HeaderMessageID), Handler: func(_ context.Context, m *consumer.Message) error {
		_, err := fmt.Fprintf(f, "%d %s %d\n", os.Getpid(), m.ID(), time.Now().UnixMilli())
		return err
	}})
	require.NoError(t, err)
	require.NoError(t, kafka.Run(context.Background(), kafka.Config{Brokers: strings.Split(args[0], ","), Group: args[1], Topics: []string{args[2]}, Session: time.Second}, p))
}

func TestTrap55_MemberKilled_ItsPartitionsAreTakenOverAfterTheSession(t *testing.T) {
	brokers := realBrokers(t)
	topic, group := newTopic(t, brokers, testenv.Name(t), 4), testenv.Name(t)
	file := filepath.Join(t.TempDir(), "effects")
	member := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMember$")
		cmd.Env = append(os.Environ(), "IDEMQ_TEST_MEMBER="+strings.Join([]string{strings.Join(brokers, ","), group, topic, file}, " "))
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		require.NoError(t, cmd.Start())
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait()) // killed
	}
	victim, survivor := member(), member()
	defer kill(survivor)
	stop := stream(t, brokers, topic, 40, 10*time.Millisecond)
	both := func() bool { // work on records of the last second
		seen := map[int]bool{}
		for _, x := range lines(t, file) {
			if time.Since(x.at) < time.Second {
				seen[x.pid] = true
			}
		}
		return seen[victim.Process.Pid] && seen[survivor.Process.Pid]
	}
	eventually(t, "both work", both)
	kill(victim)
	killed := time.Now()
	recs := stop()
	eventually(t, "everything took effect", func() bool { return len(distinct(lines(t, file))) == len(recs) })
	require.Less(t, time.Since(killed), 10*time.Second)
	twice := len(lines(t, file)) - len(recs)
	t.Logf("%d records, %d again after the kill", len(recs), twice)
	// each process has a memory of its own here, so what was not committed runs again: at most half a second's worth
	require.Less(t, twice, len(recs))
}

type line struct {
	pid int
	id  string
	at  time.Time
}

func lines(t *testing.T, file string) (out []line) {
	t.Helper()
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var x line
		var ms int64
		if _, err := fmt.Sscan(s.Text(), &x.pid, &x.id, &ms); err == nil {
			x.at = time.UnixMilli(ms)
			out = append(out, x)
		}
	}
	return out
}

func distinct(ls []line) map[string]bool {
	out := map[string]bool{}
	for _, x := range ls {
		out[x.id] = true
	}
	return out
}
