package sqlstore_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
)

func check(t testing.TB, l dedupe.Store) []dedupe.Finding {
	t.Helper()
	fs, err := l.Check(t.Context(), dedupe.CheckEnv{Scope: "inventory", Mode: dedupe.Transactional, Lease: time.Minute, Retention: time.Hour})
	require.NoError(t, err)
	return fs
}

// codes of what is refused.
func codes(fs []dedupe.Finding) (out []string) {
	for _, f := range fs {
		if f.Refuse {
			out = append(out, f.Code)
		}
	}
	return out
}

func TestCheck_MigratedTables_AreFine(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, _ := d.migrated(t)
		require.Empty(t, check(t, l))
	})
}

func TestMigrate_ManyProcessesAtOnce_MakeOneLog(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		url := d.url(t)
		var wait sync.WaitGroup
		errs := make([]error, 8)
		logs := make([]*sqlstore.Log, len(errs))
		for i := range errs {
			logs[i] = newLog(t, open(t, url))
			wait.Go(func() { errs[i] = logs[i].Migrate(context.Background()) })
		}
		wait.Wait()
		require.NoError(t, errors.Join(errs...))
		first, err := logs[0].Incarnation(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, first)
		for _, l := range logs {
			inc, err := l.Incarnation(t.Context())
			require.NoError(t, err)
			require.Equal(t, first, inc)
			require.NoError(t, l.Migrate(context.Background()), "and again")
		}
	})
}

func TestMigrate_NewerSchema_OlderProgramIsRefusedByName(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l, db := d.migrated(t)
		_, err := db.Exec("UPDATE idempotent_log_meta SET schema_version = 7 WHERE schema_version = 1")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		older := newLog(t, db)
		for name, err := range map[string]error{
			"migrate": older.Migrate(t.Context()),
			"claim":   claim(t, older, key(t, "a"), newOwner()).Err,
			"enter":   errorOf(older.Enter(t.Context(), dedupe.ScopeRow{Scope: "s", Mode: dedupe.Logged, Retention: time.Hour})),
		} {
			require.ErrorIs(t, err, sqlstore.ErrSchema, name)
			require.ErrorContains(t, err, "version 7", name)
			require.False(t, dedupe.IsOutage(err), name)
		}
		require.Equal(t, []string{"log-schema-newer"}, codes(check(t, older)))
	})
}

func errorOf[T any](_ T, err error) error { return err }

func TestCheck_NotMigrated_SaysWhatToRun(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		l := newLog(t, open(t, d.url(t)))
		fs := check(t, l)
		require.Equal(t, []string{"log-not-migrated"}, codes(fs))
		require.Contains(t, fs[0].Remedy, "Migrate")
		err := claim(t, l, key(t, "a"), newOwner()).Err
		require.ErrorIs(t, err, sqlstore.ErrSchema)
		require.ErrorContains(t, err, "idempotent_log_meta")
		// It is found out when it has been done, without a new Log.
		require.NoError(t, l.Migrate(t.Context()))
		require.NoError(t, claim(t, l, key(t, "a"), newOwner()).Err)
	})
}

func TestDDL_IsWhatMigrateRuns(t *testing.T) {
	dialect := map[string]sqlstore.Dialect{"PostgreSQL": sqlstore.Postgres, "MariaDB": sqlstore.MySQL, "SQLite": sqlstore.SQLite}
	onEach(t, all, func(t *testing.T, d database) {
		db := open(t, d.url(t))
		cfg := sqlstore.Config{Table: "shop_log"}
		text, err := sqlstore.DDL(dialect[d.name], cfg)
		require.NoError(t, err)
		for _, statement := range strings.Split(text, ";\n") {
			if strings.TrimSpace(statement) != "" {
				_, err := db.Exec(statement)
				require.NoError(t, err, statement)
			}
		}
		l := newLog(t, db, func(c *sqlstore.Config) { c.Table = "shop_log" })
		require.Empty(t, check(t, l))
		require.NoError(t, l.Migrate(t.Context()))
		require.Equal(t, dedupe.Claimed, claim(t, l, key(t, "a"), newOwner()).Verdict)
	})
	_, err := sqlstore.DDL("oracle", sqlstore.Config{})
	require.ErrorContains(t, err, `"oracle"`)
}

// The usual collations take Order-a, order-A, Ordér-a and "Order-a " for one id: a false duplicate is a lost message.
func TestCheck_IDColumnFoldsOrTheKeyIsNotThere_IsRefusedWithTheRemedy(t *testing.T) {
	for _, c := range []struct {
		name string
		d    database
		sql  []string
		code string
		says string
	}{
		{"MySQL's default collation", mariadb, []string{"ALTER TABLE idempotent_log MODIFY msg_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"}, "id-column-folds", "utf8mb4_general_ci"},
		{"utf8mb4_bin ignores trailing spaces", mariadb, []string{"ALTER TABLE idempotent_log MODIFY msg_id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"}, "id-column-folds", "utf8mb4_bin"},
		{"a column that is too short", mariadb, []string{"ALTER TABLE idempotent_log MODIFY msg_id VARBINARY(64) NOT NULL"}, "log-column-short", "255 bytes"},
		{"a key of a prefix", mariadb, []string{"ALTER TABLE idempotent_log DROP PRIMARY KEY, ADD PRIMARY KEY (scope, namespace, msg_id(20))"}, "log-key-missing", "msg_id"},
		{"no key, MySQL", mariadb, []string{"ALTER TABLE idempotent_log DROP PRIMARY KEY"}, "log-key-missing", "primary key"},
		{"a missing column, MySQL", mariadb, []string{"ALTER TABLE idempotent_log DROP COLUMN generation"}, "log-column-missing", "generation"},
		{"text", postgres, []string{"ALTER TABLE idempotent_log ALTER msg_id TYPE text USING convert_from(msg_id, 'UTF8')"}, "id-column-folds", "text"},
		{"a key over a day too, as of a partitioned table", postgres, []string{
			"ALTER TABLE idempotent_log DROP CONSTRAINT idempotent_log_pkey", "ALTER TABLE idempotent_log ADD PRIMARY KEY (scope, namespace, msg_id, created_at)",
		}, "log-key-missing", "created_at"},
		{"no key, PostgreSQL", postgres, []string{"ALTER TABLE idempotent_log DROP CONSTRAINT idempotent_log_pkey"}, "log-key-missing", "primary key"},
		{"a missing column, PostgreSQL", postgres, []string{"ALTER TABLE idempotent_log DROP COLUMN generation"}, "log-column-missing", "generation"},
		{"a table without the log's", postgres, []string{"DROP TABLE idempotent_log"}, "log-not-migrated", "idempotent_log"},
		{"a text key accepts NULL twice", sqlite, []string{"DROP TABLE idempotent_log", "CREATE TABLE idempotent_log (scope BLOB NOT NULL, namespace BLOB NOT NULL, msg_id TEXT COLLATE NOCASE PRIMARY KEY)"}, "id-column-folds", "TEXT"},
		{"a missing column, SQLite", sqlite, []string{"ALTER TABLE idempotent_log DROP COLUMN generation"}, "log-column-missing", "generation"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, db := c.d.migrated(t)
			for _, statement := range c.sql {
				_, err := db.Exec(statement)
				require.NoError(t, err)
			}
			fs := check(t, l)
			require.Contains(t, codes(fs), c.code)
			var all []string
			for _, f := range fs {
				require.NotEmpty(t, f.Remedy)
				all = append(all, f.Error())
			}
			require.Contains(t, strings.Join(all, "\n"), c.says)
		})
	}
}

func TestCheck_ReadOnlyDatabase_IsRefused(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		url := d.url(t)
		db := open(t, url)
		require.NoError(t, newLog(t, db).Migrate(t.Context()))
		switch d.name {
		case "PostgreSQL":
			db = open(t, url+"&default_transaction_read_only=on")
		case "MariaDB":
			db = open(t, url+"?tx_read_only=1")
		default:
			_, err := db.Exec("PRAGMA query_only = 1")
			require.NoError(t, err)
		}
		l := newLog(t, db)
		fs := check(t, l)
		require.Equal(t, []string{"log-read-only"}, codes(fs))
		err := claim(t, l, key(t, "a"), newOwner()).Err
		require.ErrorIs(t, err, dedupe.ErrUnavailable, "surely not done, and an outage, not a failure of the message")
	})
}

func TestCheck_ClientFoundRows_IsRefused(t *testing.T) {
	_, db := mariadb.migrated(t)
	l := newLog(t, foundRowsPool(t, db))
	require.Equal(t, []string{"client-found-rows"}, codes(check(t, l)))
	err := claim(t, l, key(t, "a"), newOwner()).Err
	require.ErrorIs(t, err, sqlstore.ErrSchema)
	require.ErrorContains(t, err, "clientFoundRows")
}

func TestCheck_PoolTooSmallForItsHandlers_IsRefused(t *testing.T) {
	l, db := postgres.migrated(t)
	db.SetMaxOpenConns(5)
	for concurrency, want := range map[int][]string{3: nil, 4: {"pool-too-small"}, 0: nil} {
		fs, err := l.Check(t.Context(), dedupe.CheckEnv{Concurrency: concurrency})
		require.NoError(t, err)
		require.Equal(t, want, codes(fs), concurrency)
	}
}

func TestCheck_TimeoutAboveAThirdOfTheLease_IsAWarningWhereTheLogRenews(t *testing.T) {
	l, _ := sqlite.migrated(t)
	fs, err := l.Check(t.Context(), dedupe.CheckEnv{Mode: dedupe.Logged, Lease: 12 * time.Second})
	require.NoError(t, err)
	require.Len(t, fs, 1)
	require.False(t, fs[0].Refuse)
	require.Equal(t, "log-timeout-above-lease", fs[0].Code)
}

func TestCheck_DatabaseIsAway_IsUnavailable(t *testing.T) {
	for _, url := range []string{"postgres://u:p@127.0.0.1:1/db?sslmode=disable", "mysql://u:p@127.0.0.1:1/db"} {
		l := newLog(t, open(t, url))
		_, err := l.Check(t.Context(), dedupe.CheckEnv{})
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
		require.NotContains(t, err.Error(), "u:p")
		require.ErrorIs(t, l.Migrate(t.Context()), dedupe.ErrUnavailable)
		require.ErrorIs(t, claim(t, l, key(t, "a"), newOwner()).Err, dedupe.ErrUnavailable)
		_, err = l.Incarnation(t.Context())
		require.ErrorIs(t, err, dedupe.ErrUnavailable)
	}
}

func TestCheck_WrongPassword_IsNoOutage(t *testing.T) {
	onEach(t, servers, func(t *testing.T, d database) {
		url := strings.Replace(d.url(t), "idemq:idemq@", "idemq:secret-and-wrong@", 1)
		l := newLog(t, open(t, url))
		_, err := l.Check(t.Context(), dedupe.CheckEnv{})
		require.Error(t, err)
		require.False(t, dedupe.IsOutage(err), err)
		require.NotContains(t, err.Error(), "secret")
	})
}

// billing is another schema of db; in MariaDB, where it is a database, the one that there is.
func billing(t testing.TB, d database, db *sqlx.DB) (schema string) {
	t.Helper()
	schema = "Billing"
	switch d.name {
	case "PostgreSQL":
		db.MustExec(`CREATE SCHEMA "Billing"`)
	case "MariaDB":
		require.NoError(t, db.Get(&schema, "SELECT DATABASE()"))
	default:
		db.MustExec("ATTACH DATABASE ? AS Billing", filepath.Join(t.TempDir(), "billing.db"))
	}
	return schema
}

func TestTables_InASchemaAndUnderAnotherName(t *testing.T) {
	onEach(t, all, func(t *testing.T, d database) {
		db := open(t, d.url(t))
		schema := billing(t, d, db)
		l := newLog(t, db, func(c *sqlstore.Config) { c.Schema, c.Table = schema, "shop_idempotent_log" })
		require.Equal(t, []string{"log-not-migrated"}, codes(check(t, l)))
		require.NoError(t, l.Migrate(t.Context()))
		require.Empty(t, check(t, l))
		require.Equal(t, dedupe.Claimed, claim(t, l, key(t, "a"), newOwner()).Verdict)
		other := newLog(t, db)
		require.NoError(t, other.Migrate(t.Context()))
		require.Equal(t, dedupe.Claimed, claim(t, other, key(t, "a"), newOwner()).Verdict, "another table is another log")
	})
}

func TestOpen_Urls(t *testing.T) {
	for url, says := range map[string]string{
		"":                              "must begin with",
		"oracle://u:secret@h/db":        "must begin with",
		"postgres://u:secret@h:port/db": "looks like postgres://",
		"mysql://u:secret@/db":          "looks like mysql://",
		// A standby that lags says "absent" of what was recorded.
		"postgres://u:secret@a:5432,b:5432/db":                          "target_session_attrs=read-write",
		"postgres://u:secret@a:5432,a:5433/db?sslmode=disable":          "target_session_attrs=read-write",
		"postgres://u:secret@a:5432,b:5432/db?target_session_attrs=any": "target_session_attrs=read-write",
		"mysql://u:secret@h/db?clientFoundRows=true":                    "clientFoundRows",
		"mysql://u:secret@h/db?timeout=soon":                            "duration",
		"sqlite:":                                                       "name a file",
		"sqlite::memory:":                                               "memory",
		"sqlite:a.db?mode=ro":                                           "parameters",
	} {
		_, err := sqlstore.Open(url)
		require.ErrorContains(t, err, says, url)
		require.NotContains(t, err.Error(), "secret")
	}
	for _, url := range []string{
		"mysql://u:p@127.0.0.1/db",
		"postgres://u:p@a/db?sslmode=prefer", // one host, with TLS and without
		"postgres://u:p@a:5432,b:5432/db?target_session_attrs=read-write",
		"postgres://u:p@a:5432,b:5432/db?target_session_attrs=primary",
	} {
		db, err := sqlstore.Open(url)
		require.NoError(t, err, url)
		require.Equal(t, 20, db.Stats().MaxOpenConnections, url)
		require.NoError(t, db.Close())
	}
}

func TestOpen_SQLite_WaitsForOtherWriters(t *testing.T) {
	url := sqlite.url(t)
	require.NoError(t, newLog(t, open(t, url)).Migrate(t.Context()))
	// Many pools, as of many processes, on one file: no write fails (no busy_timeout: 795 of 800 failed).
	var wait sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		l := newLog(t, open(t, url))
		wait.Go(func() {
			for j := range 20 {
				k, err := dedupe.NewKey("inventory", string(rune('a'+i)), string(rune('a'+j)))
				errs[i] = errors.Join(errs[i], err, l.Claim(context.Background(), []dedupe.ClaimRequest{claimRequest(k, newOwner())})[0].Err)
			}
		})
	}
	wait.Wait()
	require.NoError(t, errors.Join(errs...))
}

func TestConfig_EveryProblemIsListed(t *testing.T) {
	db, err := sqlstore.Open(sqlite.url(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	l := sqlstore.New(db, sqlstore.Config{Dialect: "oracle", Schema: "a b", Table: "1", ColumnPrefix: "Idem_", Reruns: -2, Timeout: time.Millisecond, LockWait: -1, TxLimit: 1})
	err = l.Validate()
	for _, field := range []string{"Dialect", "Schema", "Table", "ColumnPrefix", "Reruns", "Timeout", "LockWait", "TxLimit"} {
		require.ErrorContains(t, err, "sqlstore: Config."+field+":")
	}
	_, guardErr := dedupe.New(dedupe.Config{Scope: "s", Mode: dedupe.Logged, Log: l})
	require.ErrorContains(t, guardErr, "Config.Table")
	require.Error(t, claim(t, l, key(t, "a"), newOwner()).Err)
	require.Error(t, sqlstore.New(nil, sqlstore.Config{}).Validate())
	require.Error(t, sqlstore.New(sqlx.NewDb(db.DB, "wrapped"), sqlstore.Config{}).Validate())
	require.NoError(t, sqlstore.New(sqlx.NewDb(db.DB, "wrapped"), sqlstore.Config{Dialect: sqlstore.SQLite}).Validate())
}
