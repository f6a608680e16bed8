package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jmoiron/sqlx"

	"github.com/idemq/idemq/dedupe"
)

// ErrSchema: the tables are missing, older or newer than this version of the package, or the connection does not count as it must.
// Nothing was written. The error says the remedy.
var ErrSchema = errors.New("the log's tables do not fit")

// Log is idempotent_log in a database. It implements dedupe.Log and is safe for concurrent use.
type Log struct {
	db      *sqlx.DB
	cfg     Config
	d       *dialect
	problem error // of cfg: every call answers it

	files  fs.FS
	plain  statements // the incarnation is the random name alone
	joined statements // the server's identity is part of it

	preparing sync.Mutex
	prepared  atomic.Pointer[statements] // plain or joined, once the tables have been looked at

	beat heartbeat
}

var _ dedupe.Log = (*Log)(nil)

// New returns the log in db. It never fails and does no I/O: problems of cfg come out of Validate, and so of dedupe.New, and those of
// the database out of Check. db is the caller's to close, after Close. All its connections must be to the server that takes the writes: a
// standby that lags does not see what was recorded.
func New(db *sqlx.DB, cfg Config) *Log { return newLog(db, cfg, embedded) }

func newLog(db *sqlx.DB, cfg Config, files fs.FS) *Log {
	l := &Log{db: db, files: files, beat: newHeartbeat()}
	if db == nil {
		l.problem = errors.New("sqlstore: New: db is nil")
		return l
	}
	l.problem = cfg.setDefaults(db.DriverName())
	l.cfg = cfg
	if l.problem != nil {
		return l
	}
	l.d = dialects[cfg.Dialect]
	var err1, err2 error
	l.plain, err1 = load(files, l.d, cfg, false)
	l.joined, err2 = load(files, l.d, cfg, true)
	l.problem = errors.Join(err1, err2)
	return l
}

// Validate lists every problem of the Config. dedupe.New calls it.
func (l *Log) Validate() error { return l.problem }

// Close gives back the connection of the heartbeat. It does not close the database, and l can be used afterwards.
func (l *Log) Close() error { return l.beat.close() }

type identity struct {
	db            *sql.DB
	schema, table string
}

// Identity implements dedupe.Log.
func (l *Log) Identity() any {
	if l.problem != nil {
		return l
	}
	return identity{l.db.DB, l.cfg.Schema, l.cfg.Table}
}

// statements looks, once, whether the tables fit, and returns what is to be sent to them.
func (l *Log) statements(ctx context.Context) (statements, error) {
	if st := l.prepared.Load(); st != nil {
		return *st, nil
	}
	if l.problem != nil {
		return nil, l.problem
	}
	l.preparing.Lock()
	defer l.preparing.Unlock()
	if st := l.prepared.Load(); st != nil {
		return *st, nil
	}
	meta, err := l.readMeta(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.fits(meta.version); err != nil {
		return nil, err
	}
	if l.d.foundRows {
		// A database that cannot be written to now cannot answer; Check says so.
		if n, err := l.probe(ctx); err == nil && n == 1 {
			return nil, fmt.Errorf("%w: %v", ErrSchema, foundRowsFinding)
		}
	}
	st := &l.plain
	if meta.identity {
		st = &l.joined
	}
	l.prepared.Store(st)
	return *st, nil
}

type meta struct {
	version  int
	identity bool
}

func (l *Log) readMeta(ctx context.Context) (m meta, err error) {
	found := false
	read := func() error {
		return l.alone(ctx, func(ctx context.Context, q querier) error {
			err := q.QueryRowContext(ctx, l.plain["meta_read"].query).Scan(&m.version, &m.identity)
			found = err == nil
			if noRow(err) {
				return nil
			}
			return err
		})
	}
	if err = read(); isFault(err, faultData) && !mysqlDenied(err) {
		if wrong := l.shapeOfMeta(ctx); wrong != nil {
			return m, wrong
		}
		err = read() // another process may have made it since
	}
	if err == nil && !found {
		return m, fmt.Errorf("%w: table %s is empty; run Migrate, or the whole of the DDL", ErrSchema, l.cfg.Table+"_meta")
	}
	return m, err
}

// shapeOfMeta is ErrSchema when the meta table is surely not there, or not by these names: a description is told from an error.
func (l *Log) shapeOfMeta(ctx context.Context) error {
	table, version := l.cfg.Table+"_meta", l.cfg.ColumnPrefix+"schema_version"
	switch cols, err := l.columns(ctx, table); {
	case err != nil:
		return nil // what the caller met says more
	case len(cols) == 0:
		return fmt.Errorf("%w: no table %s; run Migrate, or the DDL, in the database that the log is in", ErrSchema, table)
	case !slices.ContainsFunc(cols, func(c column) bool { return c.name == version }):
		return fmt.Errorf("%w: table %s has no column %s; set Config.ColumnPrefix to what its columns begin with", ErrSchema, table, version)
	}
	return nil
}

// fits compares the version of the tables with the one that this package knows.
func (l *Log) fits(version int) error {
	known := l.latest()
	switch {
	case version > known:
		return fmt.Errorf("%w: table %s has schema version %d and this program knows version %d; use a newer release of it", ErrSchema, l.cfg.Table, version, known)
	case version < known:
		return fmt.Errorf("%w: table %s has schema version %d and this program needs version %d; run Migrate", ErrSchema, l.cfg.Table, version, known)
	}
	return nil
}

// probe writes without changing anything and returns the rows that the database counted.
func (l *Log) probe(ctx context.Context) (n int64, err error) {
	err = l.alone(ctx, func(ctx context.Context, q querier) error {
		res, err := q.ExecContext(ctx, l.plain["probe_write"].query)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return n, err
}
