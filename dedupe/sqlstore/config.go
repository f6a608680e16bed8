package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Dialect is a kind of database.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql" // and MariaDB
	SQLite   Dialect = "sqlite"
)

// Config of a Log. Zero fields take the stated default.
type Config struct {
	// Dialect is known from the name of the driver (pgx, postgres, mysql, sqlite, sqlite3); set it where the driver is wrapped under a name of
	// its own.
	Dialect Dialect
	// Schema of the tables; default: the connection's. It is used exactly as written, case included.
	Schema string
	// Table is the name of the log; default "idempotent_log". The other table has "_meta" after it. Used exactly as written.
	Table string
	// ColumnPrefix is before the name of each column of both tables, as in "idem_" for idem_scope; default: none. Lower case letters, digits
	// and underscores, no digit first, at most 49: it is not quoted. The tables are made with it: another one is another table.
	ColumnPrefix string
	// Tx is how InTx and Transactional begin; default: the database's own isolation.
	Tx *sql.TxOptions
	// Reruns is how often at most a transaction or a statement is run again after a deadlock or a serialization failure; default
	// 5, -1 for none.
	Reruns int
	// Timeout bounds each of the log's own calls, unless the caller's context is shorter; default 2 s, at least 100 ms. A third of the lease or
	// less leaves time to ask again.
	Timeout time.Duration
	// LockWait is how long a transaction of InTx or Transactional waits for a lock before it is answered as busy (on the message's own row) or
	// unavailable (elsewhere); default 5 s. MySQL waits in whole seconds, rounded up.
	LockWait time.Duration
	// TxLimit is how long the server lets a transaction of InTx or Transactional be silent, and in PostgreSQL a statement run, where the
	// context has no deadline; default 1 min. With a deadline it is the time left and a second.
	TxLimit time.Duration
}

const (
	defaultTable    = "idempotent_log"
	defaultReruns   = 5
	defaultTimeout  = 2 * time.Second
	leastTimeout    = 100 * time.Millisecond
	defaultLockWait = 5 * time.Second
	defaultTxLimit  = time.Minute
)

// identifier is what a table or schema may be called: nothing that would have to be escaped.
var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// columnPrefix is an identifier that means the same in each dialect without quotes: PostgreSQL folds upper case.
var columnPrefix = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// Room within the 63 bytes of PostgreSQL (MySQL has 64): for "_meta" and "_purge", and for the longest column, schema_version.
const (
	maxTableBytes  = 57
	maxPrefixBytes = 49
)

// setDefaults fills in zero fields and lists every problem.
func (c *Config) setDefaults(driver string) error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("sqlstore: Config."+field+": "+format, args...))
	}
	if c.Dialect == "" {
		c.Dialect = dialectOfDriver[driver]
	}
	switch _, known := dialects[c.Dialect]; {
	case c.Dialect == "":
		bad("Dialect", "not known from driver %q: set Postgres, MySQL or SQLite", driver)
	case !known:
		bad("Dialect", "%q: use Postgres, MySQL or SQLite", c.Dialect)
	}
	name := func(field, value string, most int) {
		if !identifier.MatchString(value) || len(value) > most {
			bad(field, "%q: use 1 to %d letters, digits and underscores, no digit first", value, most)
		}
	}
	if c.Table == "" {
		c.Table = defaultTable
	}
	name("Table", c.Table, maxTableBytes)
	if c.Schema != "" {
		name("Schema", c.Schema, 63)
	}
	if p := c.ColumnPrefix; p != "" && (!columnPrefix.MatchString(p) || len(p) > maxPrefixBytes) {
		bad("ColumnPrefix", "%q: use 1 to %d lower case letters, digits and underscores, no digit first", p, maxPrefixBytes)
	}
	if c.Reruns == 0 {
		c.Reruns = defaultReruns
	}
	if c.Reruns < -1 {
		bad("Reruns", "%d: at least 1, or -1 for none", c.Reruns)
	}
	c.Reruns = max(c.Reruns, 0)
	duration := func(field string, d *time.Duration, def, least time.Duration) {
		if *d == 0 {
			*d = def
		}
		if *d < least {
			bad(field, "%v: at least %v", *d, least)
		}
	}
	duration("Timeout", &c.Timeout, defaultTimeout, leastTimeout)
	duration("LockWait", &c.LockWait, defaultLockWait, time.Millisecond)
	duration("TxLimit", &c.TxLimit, defaultTxLimit, time.Second)
	return errors.Join(errs...)
}
