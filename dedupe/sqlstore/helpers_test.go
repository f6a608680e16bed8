package sqlstore_test

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/idemq/idemq/dedupe"
	"github.com/idemq/idemq/dedupe/sqlstore"
	"github.com/idemq/idemq/internal/testenv"
)

func TestMain(m *testing.M) {
	status := testenv.Main(m)
	if status == 0 {
		// A server that tests share runs as long as the test process.
		if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/idemq/idemq/internal/testenv.(*Server).Start.func1")); err != nil {
			println(err.Error())
			status = 1
		}
	}
	os.Exit(status)
}

// database is a kind of database, with a new empty one for each test.
type database struct {
	name string
	url  func(t testing.TB) string
}

var (
	postgres = database{"PostgreSQL", testenv.Postgres}
	mariadb  = database{"MariaDB", testenv.MariaDB}
	sqlite   = database{"SQLite", func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "test.db") }}

	all     = []database{postgres, mariadb, sqlite}
	servers = []database{postgres, mariadb}
)

// onEach runs test against a new database of each kind.
func onEach(t *testing.T, dbs []database, test func(t *testing.T, d database)) {
	for _, d := range dbs {
		t.Run(d.name, func(t *testing.T) { test(t, d) })
	}
}

// open opens the database at url, and closes it with the test.
func open(t testing.TB, url string) *sqlx.DB {
	t.Helper()
	db, err := sqlstore.Open(url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// newLog is a log in db, without tables yet. The timeout is long: two cores may be shared by many.
func newLog(t testing.TB, db *sqlx.DB, change ...func(*sqlstore.Config)) *sqlstore.Log {
	t.Helper()
	cfg := sqlstore.Config{Timeout: 10 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	l := sqlstore.New(db, cfg)
	require.NoError(t, l.Validate())
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// migrated is a log in a new database.
func (d database) migrated(t testing.TB, change ...func(*sqlstore.Config)) (*sqlstore.Log, *sqlx.DB) {
	t.Helper()
	db := open(t, d.url(t))
	l := newLog(t, db, change...)
	require.NoError(t, l.Migrate(context.Background()))
	return l, db
}

// rebound is a query with question marks in the placeholders of db.
func rebound(db *sqlx.DB, query string) string {
	return sqlx.Rebind(sqlx.BindType(bindName(db)), query)
}

func bindName(db *sqlx.DB) string {
	if db.DriverName() == "sqlite" {
		return "sqlite3"
	}
	return db.DriverName()
}

func newOwner() dedupe.Owner { return dedupe.Owner(rand.Text()) }

func key(t testing.TB, id string) dedupe.Key {
	t.Helper()
	k, err := dedupe.NewKey("inventory", "orders", id)
	require.NoError(t, err)
	return k
}

func only(t testing.TB, reps []dedupe.Reply) dedupe.Reply {
	t.Helper()
	require.Len(t, reps, 1)
	return reps[0]
}

func claimRequest(k dedupe.Key, o dedupe.Owner) dedupe.ClaimRequest {
	return dedupe.ClaimRequest{Key: k, Owner: o, Lease: time.Minute, Retention: time.Hour, Fingerprint: dedupe.NoFingerprint}
}

func claim(t testing.TB, l dedupe.Store, k dedupe.Key, o dedupe.Owner) dedupe.Reply {
	t.Helper()
	return only(t, l.Claim(t.Context(), []dedupe.ClaimRequest{claimRequest(k, o)}))
}

// state is that of the row of k.
func state(t testing.TB, l dedupe.Store, k dedupe.Key) dedupe.State {
	t.Helper()
	return inspect(t, l, k).State
}

func inspect(t testing.TB, l dedupe.Store, k dedupe.Key) dedupe.Record {
	t.Helper()
	recs, err := l.Inspect(context.Background(), []dedupe.Key{k})
	require.NoError(t, err)
	require.Len(t, recs, 1)
	return recs[0]
}
