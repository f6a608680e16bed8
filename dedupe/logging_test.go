package dedupe_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
)

// logsTo makes a Logger that writes to b, without times.
func logsTo(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func TestLogger_NotGiven_IsSlogsDefault(t *testing.T) {
	var b bytes.Buffer
	was := slog.Default()
	t.Cleanup(func() { slog.SetDefault(was) })
	slog.SetDefault(logsTo(&b))
	w := newWorld(t, dedupe.Logged)
	slog.SetDefault(was)
	w.leaves(t)
	require.Contains(t, b.String(), `level=WARN msg="claim not released"`)
	require.Contains(t, b.String(), "key="+w.key("A").String())
	require.NotContains(t, b.String(), "body of A")
}

func TestLogger_Given_IsTheOnlyOne(t *testing.T) {
	var given, byDefault bytes.Buffer
	was := slog.Default()
	t.Cleanup(func() { slog.SetDefault(was) })
	slog.SetDefault(logsTo(&byDefault))
	w := newWorld(t, dedupe.Logged, func(c *dedupe.Config) { c.Logger = logsTo(&given) })
	w.leaves(t)
	require.Contains(t, given.String(), `level=WARN msg="claim not released"`)
	require.Empty(t, byDefault.String())
}

// leaves is a delivery whose claim cannot be released, which is worth a warning.
func (w *world) leaves(t *testing.T) {
	t.Helper()
	_, err := w.Do(context.Background(), delivery("A"), func(context.Context, *dedupe.Claim) error {
		w.log.fails(broken, "release")
		return errHandler
	})
	require.ErrorIs(t, err, errHandler)
}

// Half a minute of silence looks like a program that hangs.
func TestCheck_DatabaseAway_IsLoggedAtTheFirstFailureAndOnce(t *testing.T) {
	for _, op := range []string{"check", "enter"} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b bytes.Buffer
				start := time.Now()
				w := newWorld(t, dedupe.Logged)
				w.log.fails(refused, op)
				var loggedAfter time.Duration
				g := w.process(func(c *dedupe.Config) {
					c.Log = checkedLog{w.log, func(dedupe.CheckEnv) ([]dedupe.Finding, error) {
						if b.Len() > 0 && loggedAfter == 0 {
							loggedAfter = time.Since(start)
						}
						return nil, w.log.fault("check").err()
					}}
					c.Logger = logsTo(&b)
				})
				_, err := g.Check(context.Background(), dedupe.Environment{})
				require.ErrorIs(t, err, dedupe.ErrUnavailable)
				require.Equal(t, "level=WARN msg=\"database does not answer; asked again for 30s\" scope=inventory err=", b.String()[:strings.Index(b.String(), "err=")+4])
				require.Equal(t, 1, strings.Count(b.String(), "\n"), b.String())
				if op == "check" {
					require.Less(t, loggedAfter, time.Second)
				}
			})
		})
	}
}

func TestCheck_DatabaseAwayAndTheStartIsGivenUp_SaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dedupe.Logged)
		w.log.fails(refused, "enter")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := w.Check(ctx, dedupe.Environment{})
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
		require.ErrorContains(t, err, `dedupe: check: the database does not answer, and the start was given up: dedupe: enter scope "inventory": `)
		require.NotContains(t, err.Error(), "30s")
	})
}
