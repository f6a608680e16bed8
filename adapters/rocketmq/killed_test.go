package rocketmq_test

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

	"github.com/idemq/idemq/adapters/rocketmq"
	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/internal/testenv"
)

// TestMember is no test: it is the process that the tests of this file kill. It appends a line to a file for each effect.
func TestMember(t *testing.T) {
	args := strings.Fields(os.Getenv("IDEMQ_TEST_MEMBER"))
	if len(args) != 5 {
		t.Skip("a helper process of other tests")
	}
	f, err := os.OpenFile(args[3], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	g, err := dedupe.New(dedupe.Config{Scope: "shop", Mode: dedupe.Logged, Log: memstore.NewLog()})
	require.NoError(t, err)
	p, err := consumer.NewPipeline(consumer.Config{Guard: g, ID: consumer.IDFromHeader(rocketmq.HeaderMessageID), Handler: func(_ context.Context, m *consumer.Message) error {
		_, err := fmt.Fprintf(f, "%d %s\n", os.Getpid(), m.ID())
		return err
	}})
	require.NoError(t, err)
	require.NoError(t, rocketmq.Run(context.Background(), rocketmq.Config{NameServers: []string{args[0]}, Group: args[1], Topics: []string{args[2]}, UnverifiedTLS: args[4] == "tls"}, p))
}

// member starts TestMember.
func (w world) member(t *testing.T, file, connection string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMember$")
	cmd.Env = append(os.Environ(), "IDEMQ_TEST_MEMBER="+strings.Join([]string{w.names, w.group, w.topic, file, connection}, " "))
	require.NoError(t, cmd.Start())
	return cmd
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait()) // killed
}

func TestKilledMember_ItsQueuesAreTakenOver_AndNothingIsLost(t *testing.T) {
	w := newWorld(t, 4)
	file := filepath.Join(t.TempDir(), "effects")
	member := func() *exec.Cmd { return w.member(t, file, "plain") }
	kill := func(cmd *exec.Cmd) { kill(t, cmd) }
	stop := w.stream(t, 5*time.Millisecond)
	victim := member()
	eventually(t, "it works", func() bool { return lines(t, file)[victim.Process.Pid] > 20 })
	survivor := member()
	defer kill(survivor)
	eventually(t, "both work", func() bool { return lines(t, file)[survivor.Process.Pid] > 20 })
	kill(victim)
	victim = member()
	eventually(t, "three have worked", func() bool { return lines(t, file)[victim.Process.Pid] > 20 })
	kill(victim)
	recs := stop()
	eventually(t, "everything took effect", func() bool { return lines(t, file)[distinctIDs] == len(recs) })
}

// distinctIDs is where lines counts them; no process has this id.
const distinctIDs = -1

// lines counts the effects of each process, and the distinct ids.
func lines(t *testing.T, file string) map[int]int {
	t.Helper()
	out := map[int]int{}
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return out
	}
	require.NoError(t, err)
	defer f.Close()
	ids := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var pid int
		var id string
		if _, err := fmt.Sscan(s.Text(), &pid, &id); err == nil {
			out[pid]++
			ids[id] = true
		}
	}
	out[distinctIDs] = len(ids)
	return out
}

// Trap 39: TLS is for the whole process, so this needs one of its own.
func TestTrap39_TLS_IsAnExplicitChoice(t *testing.T) {
	s := testenv.OwnRocketMQ(t, testenv.RocketMQOptions{TLS: true})
	w := worldAt(t, s.URL, 1)
	w.send(t, record{"k", "id-0", "x"})
	file := filepath.Join(t.TempDir(), "effects")
	m := w.member(t, file, "tls")
	defer kill(t, m)
	eventually(t, "it took effect", func() bool { return lines(t, file)[m.Process.Pid] == 1 })
}

// The client finds a broker that was away with its next heartbeat, which it sends every 30 s.
func TestKilledBroker_ComesBack_NothingIsLostAndNothingTwice(t *testing.T) {
	s := testenv.OwnRocketMQ(t, testenv.RocketMQOptions{})
	w := worldAt(t, s.URL, 4)
	cfg := w.config(t)
	cfg.MaxWaiting = 65_535 // the client counts without a lock how often it was over its limit, which the race detector would find
	var e effects
	r := start(t, cfg, newPipe(t, newGuard(t, "shop", nil), e.apply))
	stop := w.stream(t, 5*time.Millisecond)
	eventually(t, "it works", func() bool { return e.len() > 50 })
	require.NoError(t, s.Kill())
	require.NoError(t, s.Start())
	from := e.len()
	eventually(t, "it works again", func() bool { return e.len() > from+50 })
	recs := stop()
	eventually(t, "everything took effect", func() bool { return e.distinct() == len(recs) })
	require.NoError(t, r.stop())
	require.Equal(t, len(recs), e.len())
}

// Trap 38: members in one process are two members.
func TestTrap38_TwoMembersInOneProcess_ShareTheQueues(t *testing.T) {
	w := newWorld(t, 4)
	g := newGuard(t, "shop", nil)
	var e effects
	a := start(t, w.config(t), newPipe(t, g, e.apply))
	b := start(t, w.config(t), newPipe(t, g, e.apply))
	stop := w.stream(t, 10*time.Millisecond)
	topicQueues := func(r *running) (n int) {
		for _, q := range r.State().Assigned {
			if q.Topic == w.topic {
				n++
			}
		}
		return n
	}
	eventually(t, "each has two", func() bool { return topicQueues(a) == 2 && topicQueues(b) == 2 })
	require.NoError(t, a.stop())
	eventually(t, "one has all", func() bool { return topicQueues(b) == 4 })
	recs := stop()
	eventually(t, "everything took effect", func() bool { return e.distinct() == len(recs) })
	require.NoError(t, b.stop())
	require.Equal(t, len(recs), e.len())
}
