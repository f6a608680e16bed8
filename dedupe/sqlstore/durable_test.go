package sqlstore_test

import (
	"strings"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/internal/testenv"
)

// After a crash of the server the row and the effect are gone, while Redis and the broker's offsets are further.
func TestCheck_CommitsAreNotOnTheDisk_IsAWarningByName(t *testing.T) {
	onConnection := func(d database, more string) func(*testing.T) *sqlx.DB {
		return func(t *testing.T) *sqlx.DB { return open(t, d.url(t)+more) }
	}
	onServer := func(own func(testing.TB, ...string) *testenv.Server, setting string) func(*testing.T) *sqlx.DB {
		return func(t *testing.T) *sqlx.DB { return open(t, own(t, setting).URL) }
	}
	pragma := func(pragmas ...string) func(*testing.T) *sqlx.DB {
		return func(t *testing.T) *sqlx.DB {
			db := open(t, sqlite.url(t))
			for _, p := range pragmas {
				db.MustExec("PRAGMA " + p)
			}
			return db
		}
	}
	for name, c := range map[string]struct {
		db   func(*testing.T) *sqlx.DB
		says []string // one for each finding
	}{
		"PostgreSQL, as it is":         {onConnection(postgres, ""), nil},
		"PostgreSQL, this server only": {onConnection(postgres, "&synchronous_commit=local"), nil},
		"PostgreSQL, connection":       {onConnection(postgres, "&synchronous_commit=off"), []string{"synchronous_commit = off"}},
		"PostgreSQL, database": {func(t *testing.T) *sqlx.DB {
			url := postgres.url(t)
			open(t, url).MustExec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$")
			return open(t, url)
		}, []string{"synchronous_commit = off"}},
		"PostgreSQL, server":       {onServer(testenv.OwnPostgres, "fsync=off"), []string{"fsync = off"}},
		"MariaDB, as it is":        {onConnection(mariadb, ""), nil},
		"MariaDB, never synced":    {onServer(testenv.OwnMariaDB, "--innodb-flush-log-at-trx-commit=2"), []string{"innodb_flush_log_at_trx_commit = 2"}},
		"SQLite, as Open makes it": {pragma(), nil},
		"SQLite, off":              {pragma("synchronous = OFF"), []string{"synchronous = OFF"}},
		"SQLite, too little":       {pragma("synchronous = NORMAL"), []string{"synchronous = NORMAL"}},
		"SQLite, without a WAL":    {pragma("journal_mode = DELETE", "synchronous = NORMAL"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLog(t, c.db(t))
			require.NoError(t, l.Migrate(t.Context()))
			for mode, says := range map[dedupe.Mode]string{dedupe.Transactional: "they are lost", dedupe.Logged: "applied again"} {
				fs, err := l.Check(t.Context(), dedupe.CheckEnv{Scope: "inventory", Mode: mode})
				require.NoError(t, err)
				require.Len(t, fs, len(c.says))
				for i, f := range fs {
					require.Equal(t, "log-not-durable", f.Code)
					require.False(t, f.Refuse)
					require.True(t, strings.HasPrefix(f.What, c.says[i]+":"), f.What)
					require.Contains(t, f.What, says)
					require.NotEmpty(t, f.Remedy)
				}
			}
		})
	}
}
