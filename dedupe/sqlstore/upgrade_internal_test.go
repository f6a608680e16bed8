package sqlstore

import (
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// A later release brings v2_*.sql: Migrate runs it once, in order, and a release without it refuses the tables.
func TestMigrate_NextSchemaVersion_IsReachedOnceAndRefusedByTheOlder(t *testing.T) {
	db, err := Open("sqlite:" + filepath.Join(t.TempDir(), "log.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	old := New(db, Config{})
	require.NoError(t, old.Migrate(t.Context()))

	next := fstest.MapFS{}
	require.NoError(t, fs.WalkDir(embedded, "sqlite", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(embedded, path)
		next[path] = &fstest.MapFile{Data: b}
		return err
	}))
	next["sqlite/v2_1_note.sql"] = &fstest.MapFile{Data: []byte("-- A note.\nALTER TABLE {{log}} ADD COLUMN note TEXT\n")}
	next["sqlite/v2_2_fill.sql"] = &fstest.MapFile{Data: []byte("-- Uses what the step before it made.\nUPDATE {{log}} SET note = ''\n")}
	l := newLog(db, Config{}, next)
	_, err = l.statements(t.Context())
	require.ErrorIs(t, err, ErrSchema)
	require.ErrorContains(t, err, "run Migrate")
	for range 2 { // a second ALTER TABLE would fail
		require.NoError(t, l.Migrate(t.Context()))
	}
	_, err = l.statements(t.Context())
	require.NoError(t, err)

	_, err = New(db, Config{}).statements(t.Context())
	require.ErrorIs(t, err, ErrSchema)
	require.ErrorContains(t, err, "schema version 2")
	require.ErrorIs(t, New(db, Config{}).Migrate(t.Context()), ErrSchema)

	// And from nothing.
	fresh, err := Open("sqlite:" + filepath.Join(t.TempDir(), "fresh.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, fresh.Close()) })
	l = newLog(fresh, Config{}, next)
	require.NoError(t, l.Migrate(t.Context()))
	_, err = l.statements(t.Context())
	require.NoError(t, err)
}
