package dedupe_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

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
