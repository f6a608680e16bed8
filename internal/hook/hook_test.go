package hook_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/internal/hook"
)

type named interface{ name() string }

type sees string

func (s sees) name() string { return string(s) }

func TestEach_CallsThoseOfTheKindInOrder_AndAPanicIsOnlyLogged(t *testing.T) {
	var log bytes.Buffer
	var called []string
	hook.Each(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), []any{sees("a"), 7, sees("b"), sees("c")}, func(h named) {
		called = append(called, h.name())
		if h.name() == "b" {
			panic("of b")
		}
	})
	require.Equal(t, []string{"a", "b", "c"}, called)
	require.Contains(t, log.String(), `msg="hook panicked" panic="of b"`)
}
