package crash_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/idemq/idemq/dedupe/sqlstore"
	"github.com/idemq/idemq/internal/testenv"
)

func run(m *testing.M) int { return testenv.Main(m) }

// environment is a Redis, a database with the log and a table of effects, and messages with ids of their own.
type environment struct {
	redis, url string
	db         *sqlx.DB
	next       *atomic.Int64
}

var databases = map[string]func(t *testing.T) environment{
	"postgres": func(t *testing.T) environment { return prepare(t, testenv.Postgres(t)) },
	"mariadb":  func(t *testing.T) environment { return prepare(t, testenv.MariaDB(t)) },
	"sqlite": func(t *testing.T) environment {
		return prepare(t, "sqlite:"+filepath.Join(t.TempDir(), "crash.db"))
	},
}

func prepare(t *testing.T, url string) environment {
	t.Helper()
	env := environment{redis: testenv.Redis(t), url: url, next: new(atomic.Int64)}
	var err error
	env.db, err = sqlstore.Open(url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, env.db.Close()) })
	require.NoError(t, sqlstore.New(env.db, sqlstore.Config{}).Migrate(t.Context()))
	_, err = env.db.ExecContext(t.Context(), "CREATE TABLE effects (id VARCHAR(64) NOT NULL)") // no key: a double would show
	require.NoError(t, err)
	return env
}

// job is a first delivery in a scope row of its mode: the three modes do not share a scope.
func (e environment) job(t *testing.T, s story, at string) job {
	return job{
		Redis: e.redis, DB: e.url, Dir: t.TempDir(), Mode: s.mode, ID: fmt.Sprintf("m-%d", e.next.Add(1)), Fail: s.fail, At: at,
	}
}

func (e environment) effects(t *testing.T, id string) (n int) {
	t.Helper()
	require.NoError(t, e.db.GetContext(t.Context(), &n, "SELECT COUNT(*) FROM effects WHERE id = '"+id+"'"))
	return n
}
