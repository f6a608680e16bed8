package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// maxConns of a pool that Open makes. The example's and most services' databases allow a hundred or more in all.
const (
	maxConns   = 20
	idleFor    = 5 * time.Minute
	openFor    = time.Hour // so that a failover behind a name is followed
	connecting = 5 * time.Second
	busyFor    = 5 * time.Second
)

// Open returns a pool whose settings suit a log: postgres://user:password@host:port/database?..., mysql://user:password@host:port/database (and
// MariaDB), sqlite:FILE. It connects to nothing yet: the first use does, and Check says what is wrong. Errors do not repeat the url, which may
// hold a password.
//
// PostgreSQL and MySQL: at most 20 connections, all of which may idle (database/sql closes all but two by default, and opens them
// again for each message); change it with SetMaxOpenConns and SetMaxIdleConns. PostgreSQL: a url with several hosts must have
// target_session_attrs=read-write (or primary). MySQL: times are parsed, counts are of changed rows,
// and arguments are put into the text by the driver, which spares a round trip. Its parameters may be given as in a data source name of
// the driver, but for clientFoundRows. SQLite: write-ahead log, writers wait 5 s for each other, and one connection, since there is one
// writer: a handler that uses the pool inside its transaction waits for itself.
func Open(dsn string) (*sqlx.DB, error) {
	scheme, rest, _ := strings.Cut(dsn, ":")
	switch scheme {
	case "postgres", "postgresql":
		return openPostgres(dsn)
	case "mysql", "mariadb":
		return openMySQL(dsn)
	case "sqlite":
		return openSQLite(rest)
	}
	return nil, errors.New("sqlstore: open: the url must begin with postgres://, mysql:// or sqlite:FILE")
}

func openPostgres(dsn string) (*sqlx.DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("sqlstore: open: postgres url: cannot be parsed; it looks like postgres://user:password@host:5432/database?sslmode=disable")
	}
	if cfg.ValidateConnect == nil && severalServers(cfg) {
		return nil, errors.New("sqlstore: open: postgres url: several hosts: add target_session_attrs=read-write, or a connection may be one to a standby, which does not see yet what was recorded")
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connecting
	}
	return pooled(sqlx.NewDb(stdlib.OpenDB(*cfg), "pgx")), nil
}

// severalServers: the url names more than one. The same one again is the other attempt at TLS.
func severalServers(cfg *pgx.ConnConfig) bool {
	return slices.ContainsFunc(cfg.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != cfg.Host || f.Port != cfg.Port })
}

func openMySQL(dsn string) (*sqlx.DB, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Host == "" {
		return nil, errors.New("sqlstore: open: mysql url: cannot be parsed; it looks like mysql://user:password@host:3306/database")
	}
	host := u.Host
	if u.Port() == "" {
		host += ":3306"
	}
	cfg, err := mysql.ParseDSN("tcp(" + host + ")/?" + u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: open: mysql url: parameters: %w", err)
	}
	if cfg.ClientFoundRows {
		return nil, errors.New("sqlstore: open: mysql url: clientFoundRows: true: remove it, a duplicate would look new")
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.ParseTime, cfg.InterpolateParams = true, true
	cfg.Logger = &mysql.NopLogger{} // what it would say is in the errors too
	if cfg.Timeout == 0 {
		cfg.Timeout = connecting
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: open: mysql url: %w", err)
	}
	return pooled(sqlx.NewDb(sql.OpenDB(connector), "mysql")), nil
}

// pooled sizes the pool of a database with a server.
func pooled(db *sqlx.DB) *sqlx.DB {
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	db.SetConnMaxIdleTime(idleFor)
	db.SetConnMaxLifetime(openFor)
	return db
}

func openSQLite(file string) (*sqlx.DB, error) {
	file = strings.TrimPrefix(file, "//")
	if file == "" || strings.Contains(file, ":memory:") {
		return nil, errors.New("sqlstore: open: sqlite url: name a file, as in sqlite:orders.db; a database in memory is forgotten with its connection")
	}
	if strings.ContainsAny(file, "?#") {
		return nil, errors.New("sqlstore: open: sqlite url: parameters are not taken; the file name may not contain ? or #")
	}
	params := url.Values{
		"_txlock": {"immediate"}, "_busy_timeout": {strconv.FormatInt(busyFor.Milliseconds(), 10)},
		"_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_foreign_keys": {"1"},
	}
	db, err := sqlx.Open("sqlite", file+"?"+params.Encode())
	if err != nil {
		return nil, fmt.Errorf("sqlstore: open: sqlite: %w", err)
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	return db, nil
}
