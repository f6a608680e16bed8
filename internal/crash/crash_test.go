package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/dedupe/sqlstore"
	"github.com/idemq/idemq/internal/crash"
)

// job is what a worker process is told: one delivery, and where to die.
type job struct {
	Redis, DB string
	Dir       string // letters and acks, a line each
	Mode      dedupe.Mode
	ID        string
	Fail      bool // the handler says that the message can never be applied
	Redriven  bool
	At        string
}

const (
	jobVar = "IDEMQ_CRASH_JOB"
	topic  = "orders"
	lease  = 400 * time.Millisecond
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what a nil Logger means
	if text := os.Getenv(jobVar); text != "" {
		var j job
		err := json.Unmarshal([]byte(text), &j)
		if err == nil {
			err = j.work(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

// work delivers the message until it is acknowledged, as a broker would.
func (j job) work(ctx context.Context) error {
	pass := crash.KillAt(j.At, 1)
	db, err := sqlstore.Open(j.DB)
	if err != nil {
		return err
	}
	defer db.Close()
	cfg := dedupe.Config{Scope: j.scope(), Mode: j.Mode, Lease: lease}
	idem := sqlstore.New(db, sqlstore.Config{})
	if j.Mode != dedupe.RedisOnly {
		cfg.Log = crash.Log(idem, "log", pass)
	}
	client, err := redisstore.NewClient(j.Redis)
	if err != nil {
		return err
	}
	defer client.Close()
	cfg.Store = crash.Memory(redisstore.New(client, redisstore.Config{Timeout: lease / 4}), "redis", pass)
	guard, err := dedupe.New(cfg)
	if err != nil {
		return err
	}
	pipe, err := consumer.NewPipeline(consumer.Config{
		Guard: guard, ID: consumer.IDFromHeader("msg_id"), Handler: j.handler(db, idem, pass),
		Policy: consumer.Policy{Busy: consumer.Busy{Wait: lease}},
	})
	if err != nil {
		return err
	}
	letters := crash.DeadLetters(letterFile(j.file("letters")), pass)
	for {
		d := pipe.Process(ctx, j.message(), letters)
		switch d.Action {
		case consumer.Ack:
			pass("ack.before")
			if err := appendLine(j.file("acks"), d.Verdict.String()); err != nil {
				return err
			}
			pass("ack.after")
			return nil
		case consumer.Halt:
			return fmt.Errorf("halted: %w", d.Err)
		}
		wait := time.NewTimer(max(d.After, 10*time.Millisecond))
		<-wait.C
	}
}

// scope has one mode.
func (j job) scope() string { return "crash-" + j.Mode.String() }

func (j job) file(name string) string { return filepath.Join(j.Dir, name) }

func (j job) message() *consumer.Message {
	m := &consumer.Message{
		Position: consumer.Position{Topic: topic}, Origin: consumer.Position{Topic: topic},
		Key: []byte(j.ID), Value: []byte("one of " + j.ID), Headers: consumer.Headers{{Name: "msg_id", Value: []byte(j.ID)}},
	}
	if j.Redriven {
		m.Headers = consumer.ResendHeaders(consumer.DeadLetter{
			Message: m, ID: j.ID, Scope: j.scope(), Namespace: topic, Reason: consumer.ReasonPermanent,
		})
	}
	return m
}

// handler has its effect in a table that would show a double: in the row's transaction, or on its own.
func (j job) handler(db *sqlx.DB, idem *sqlstore.Log, pass crash.Points) consumer.Handler {
	effect := func(ctx context.Context, db sqlx.ExecerContext) error {
		pass("handler.effect.before")
		if j.Fail {
			return consumer.Permanent(errors.New("can never be applied"))
		}
		if _, err := db.ExecContext(ctx, "INSERT INTO effects (id) VALUES ('"+j.ID+"')"); err != nil {
			return err
		}
		pass("handler.effect.after")
		return nil
	}
	if j.Mode != dedupe.Transactional {
		return func(ctx context.Context, _ *consumer.Message) error { return effect(ctx, db) }
	}
	inTx := sqlstore.Transactional(idem, func(ctx context.Context, tx *sqlx.Tx, _ *consumer.Message) error { return effect(ctx, tx) })
	return func(ctx context.Context, m *consumer.Message) error {
		err := inTx(ctx, m)
		pass("handler.return.before")
		return err
	}
}

type letterFile string

func (f letterFile) Publish(_ context.Context, d consumer.DeadLetter) error {
	return appendLine(string(f), d.ID+" "+d.Reason)
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// start runs a worker process and says whether it was killed at the point that it was told.
func (j job) start(t *testing.T) (killed bool) {
	t.Helper()
	text, err := json.Marshal(j)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), jobVar+"="+string(text))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() {
		require.NoError(t, ctx.Err(), "worker hangs: %s", out.String())
		return true
	}
	require.NoError(t, err, out.String())
	return false
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// points of one story, in the order in which they are passed. twice marks those between effect and completion.
type story struct {
	name   string
	mode   dedupe.Mode
	fail   bool
	points []string
	twice  map[string]bool
}

var stories = []story{
	{
		name: "success", mode: dedupe.Transactional,
		points: []string{
			"redis.claim.before", "redis.claim.after", "handler.effect.before", "handler.effect.after", "handler.return.before",
			"redis.learn.before", "redis.learn.after", "ack.before", "ack.after",
		},
	},
	{
		name: "failure", mode: dedupe.Transactional, fail: true,
		points: []string{
			"redis.claim.before", "redis.claim.after", "handler.effect.before", "handler.return.before", "letter.publish.before",
			"letter.publish.after", "log.bury.before", "log.bury.after", "redis.learn.before", "redis.learn.after", "ack.before", "ack.after",
		},
	},
	{
		name: "success", mode: dedupe.Logged,
		points: []string{
			"redis.claim.before", "redis.claim.after", "log.claim.before", "log.claim.after", "handler.effect.before", "handler.effect.after",
			"log.complete.before", "log.complete.after", "redis.learn.before", "redis.learn.after", "ack.before", "ack.after",
		},
		twice: map[string]bool{"handler.effect.after": true, "log.complete.before": true},
	},
	{
		name: "failure", mode: dedupe.Logged, fail: true,
		points: []string{
			"redis.claim.before", "redis.claim.after", "log.claim.before", "log.claim.after", "handler.effect.before", "letter.publish.before",
			"letter.publish.after", "log.bury.before", "log.bury.after", "redis.learn.before", "redis.learn.after", "ack.before", "ack.after",
		},
	},
	{
		name: "success", mode: dedupe.RedisOnly,
		points: []string{
			"redis.claim.before", "redis.claim.after", "handler.effect.before", "handler.effect.after", "redis.complete.before",
			"redis.complete.after", "ack.before", "ack.after",
		},
		twice: map[string]bool{"handler.effect.after": true, "redis.complete.before": true},
	},
	{
		name: "failure", mode: dedupe.RedisOnly, fail: true,
		points: []string{
			"redis.claim.before", "redis.claim.after", "handler.effect.before", "letter.publish.before", "letter.publish.after",
			"redis.bury.before", "redis.bury.after", "ack.before", "ack.after",
		},
	},
}

// TestKilledAtEachPoint kills a real process at each point of a message's way, delivers the message again until it is
// acknowledged, replays it, and looks at the effect.
func TestKilledAtEachPoint(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			env := open(t)
			for _, s := range stories {
				for _, at := range s.points {
					if name != "postgres" && !s.touchesDatabase(at) {
						continue // PostgreSQL shows what happens between Redis and the broker; no database differs there
					}
					t.Run(strings.Join([]string{s.mode.String(), s.name, at}, "/"), func(t *testing.T) {
						t.Parallel()
						s.tell(t, env, at)
					})
				}
			}
		})
	}
}

func (s story) touchesDatabase(at string) bool {
	return s.mode != dedupe.RedisOnly && (strings.HasPrefix(at, "log.") || strings.HasPrefix(at, "handler."))
}

func (s story) tell(t *testing.T, env environment, at string) {
	j := env.job(t, s, at)
	require.True(t, j.start(t), "the worker passes %s and is killed there", at)
	j.At = ""
	require.False(t, j.start(t), "the message is delivered again and acknowledged")
	effects := env.effects(t, j.ID)
	letters := lines(t, j.file("letters"))
	switch {
	case s.fail:
		require.Zero(t, effects)
		require.NotEmpty(t, letters, "an acknowledged message without effect lies as a dead letter")
		require.LessOrEqual(t, len(letters), 2, "one letter more than needed, if the first one's end was not known")
	case s.twice[at]:
		require.Equal(t, 2, effects, "the documented repetition: killed between the effect and its completion")
	default:
		require.Equal(t, 1, effects)
		require.Empty(t, letters)
	}
	require.False(t, j.start(t), "a replay is acknowledged")
	require.Equal(t, effects, env.effects(t, j.ID), "and has no effect")
	require.Equal(t, letters, lines(t, j.file("letters")))
	if s.fail {
		s.redrive(t, env, j)
	}
}

// redrive: the letter is sent again, now that the message can be applied, and the process is killed on the way of that too.
func (s story) redrive(t *testing.T, env environment, j job) {
	j.Fail, j.Redriven, j.At = false, true, "handler.effect.before"
	require.True(t, j.start(t))
	j.At = ""
	require.False(t, j.start(t))
	require.False(t, j.start(t), "the letter sent once more is a duplicate")
	require.Equal(t, 1, env.effects(t, j.ID))
}
