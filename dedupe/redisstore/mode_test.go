package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/memstore"
	"github.com/idemq/idemq/dedupe/redisstore"
	"github.com/idemq/idemq/internal/testenv"
)

// People read the note, and tools that delete a scope's keys find it.
func TestMode_Note_IsAKeyOfTheScopeThatLastsAndSaysWhoChangedIt(t *testing.T) {
	s, rdb := newStore(t, testenv.Redis(t))
	sc := scope()
	noted, err := s.NoteMode(t.Context(), sc, dedupe.Logged)
	require.NoError(t, err)
	require.Equal(t, dedupe.Logged, noted)
	name := "idemq:{" + sc + ":0}:mode"
	require.Equal(t, []string{name}, rdb.Keys(t.Context(), "idemq:{"+sc+":*").Val())
	require.Equal(t, "idemq-mode1 logged ", rdb.Get(t.Context(), name).Val())
	require.Equal(t, time.Duration(-1), rdb.TTL(t.Context(), name).Val(), "no time to live")

	require.NoError(t, s.ChangeMode(t.Context(), sc, dedupe.RedisOnly, dedupe.Audit{By: "mira", Reason: "no database\nhere"}))
	require.Equal(t, "idemq-mode1 redis-only mira: no database\nhere", rdb.Get(t.Context(), name).Val())
	noted, err = s.NoteMode(t.Context(), sc, dedupe.Logged)
	require.NoError(t, err)
	require.Equal(t, dedupe.RedisOnly, noted)
}

// Processes with another number of shards, which only RedisOnly refuses, meet at the same note.
func TestMode_AnotherNumberOfShards_SeesTheSameNote(t *testing.T) {
	url, sc := testenv.Redis(t), scope()
	one, _ := newStore(t, url, func(c *redisstore.Config) { c.Shards = 1 })
	many, _ := newStore(t, url, func(c *redisstore.Config) { c.Shards = 64 })
	_, err := one.NoteMode(t.Context(), sc, dedupe.Logged)
	require.NoError(t, err)
	noted, err := many.NoteMode(t.Context(), sc, dedupe.RedisOnly)
	require.NoError(t, err)
	require.Equal(t, dedupe.Logged, noted)
}

func TestMode_ForeignValue_IsNotReadAndKept(t *testing.T) {
	s, rdb := newStore(t, testenv.Redis(t))
	for _, value := range []string{"", "logged", "idemq-mode2 logged x", "idemq-mode1 exactly-once "} {
		sc := scope()
		name := "idemq:{" + sc + ":0}:mode"
		require.NoError(t, rdb.Set(t.Context(), name, value, 0).Err())
		for _, m := range []dedupe.Mode{dedupe.Logged, dedupe.RedisOnly} {
			_, err := s.NoteMode(t.Context(), sc, m)
			require.ErrorIs(t, err, redisstore.ErrForeign, value)
			require.ErrorContains(t, err, name)
		}
		require.Equal(t, value, rdb.Get(t.Context(), name).Val())
	}
}

func TestMode_RedisAway_IsErrUnavailable(t *testing.T) {
	p := newProxy(t, testenv.Redis(t))
	s, _ := newStore(t, p.url)
	p.dropping.Store(true) // it may be done: asking again answers the same
	_, err := s.NoteMode(t.Context(), scope(), dedupe.RedisOnly)
	require.ErrorIs(t, err, dedupe.ErrUnavailable)
	require.NotErrorIs(t, err, dedupe.ErrOutcomeUnknown)
	require.ErrorIs(t, s.ChangeMode(t.Context(), scope(), dedupe.RedisOnly, dedupe.Audit{}), dedupe.ErrUnavailable)
}

// What a fresh user did: first one mode, then the other, both on the same Redis.
func TestGuards_RedisOnlyAfterAModeWithALog_IsRefusedByName(t *testing.T) {
	url, sc := testenv.Redis(t), scope()
	guard := func(mode dedupe.Mode, log dedupe.Log) *dedupe.Guard {
		s, _ := newStore(t, url)
		g, err := dedupe.New(dedupe.Config{Scope: sc, Mode: mode, Store: s, Log: log, Lease: lease})
		require.NoError(t, err)
		return g
	}
	require.NoError(t, guard(dedupe.Logged, memstore.NewLog()).Ready(t.Context()))
	g := guard(dedupe.RedisOnly, nil)
	err := g.Ready(t.Context())
	require.ErrorIs(t, err, dedupe.ErrWrongMode)
	require.ErrorContains(t, err, `scope "`+sc+`": wrong mode: redis knows it as logged, not redis-only; stop all of its processes and use ChangeMode`)
	require.NoError(t, g.ChangeMode(t.Context(), dedupe.Audit{By: "mira", Reason: "moved"}))
	require.NoError(t, g.Ready(t.Context()))
	require.ErrorIs(t, guard(dedupe.Logged, memstore.NewLog()).Ready(t.Context()), dedupe.ErrWrongMode)
}
