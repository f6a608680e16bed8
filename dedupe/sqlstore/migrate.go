package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// schemaFile is v<version>_<step>_<what>.sql.
var schemaFile = regexp.MustCompile(`^v(\d+)_(\d+)_\w+$`)

// migrating bounds the wait for another process that migrates, and the work itself.
const migrating = "60s"

type step struct {
	version, order int
	name           string
}

// steps are the files that make the tables, in order.
func (st statements) steps() (out []step) {
	for name := range st {
		if m := schemaFile.FindStringSubmatch(name); m != nil {
			version, _ := strconv.Atoi(m[1]) // digits, by the pattern
			order, _ := strconv.Atoi(m[2])
			out = append(out, step{version, order, name})
		}
	}
	slices.SortFunc(out, func(a, b step) int { return (a.version-b.version)*1000 + a.order - b.order })
	return out
}

// latest is the schema version that this package knows.
func (l *Log) latest() int {
	steps := l.plain.steps()
	return steps[len(steps)-1].version
}

// Migrate creates the tables, or brings them to the schema version of this package. It may run in many processes at once, and does
// nothing where nothing is to do. ErrSchema: the tables are newer than this package. In MySQL each statement commits by itself; a Migrate
// that was cut off is simply run again.
func (l *Log) Migrate(ctx context.Context) error {
	if l.problem != nil {
		return l.problem
	}
	if m, err := l.readMeta(ctx); err == nil {
		if err := l.fits(m.version); err == nil || m.version > l.latest() {
			return opError("migrate", "", err)
		}
	} else if !errors.Is(err, ErrSchema) {
		return opError("migrate", "", err)
	}
	return opError("migrate", "", l.again(ctx, func() error { return l.migrate(ctx) }))
}

func (l *Log) migrate(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // gives it back to the pool
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return l.d.failed(err, false)
	}
	defer func() {
		_ = tx.Rollback() // after a commit there is nothing to roll back
		if _, err := l.exec(context.WithoutCancel(ctx), conn, l.plain["migrate_unlock"], l.lockArgs()); err != nil {
			discard(conn) // the session's end ends its locks
		}
	}()
	if err := l.migrateIn(ctx, tx); err != nil {
		if errors.Is(err, ErrSchema) {
			return err
		}
		return l.d.failed(err, true)
	}
	if err := tx.Commit(); err != nil {
		discard(conn)
		return l.d.failed(err, true)
	}
	return nil
}

func (l *Log) lockArgs() args {
	return args{"name": l.d.names(l.cfg)["log"]}
}

func (l *Log) migrateIn(ctx context.Context, tx *sql.Tx) error {
	var locked sql.NullInt64
	if err := l.query(ctx, tx, l.plain["migrate_lock"], l.lockArgs(), &locked); err != nil {
		return err
	}
	if locked.Int64 != 1 {
		return fmt.Errorf("%w: another process has been migrating for %s", ErrSchema, migrating)
	}
	steps := l.plain.steps()
	first := steps[0].version
	// The first version is made only where nothing is, so each of its statements may find its work done.
	for _, s := range steps {
		if s.version == first {
			if _, err := l.exec(ctx, tx, l.plain[s.name], nil); err != nil {
				return err
			}
		}
	}
	if _, err := l.exec(ctx, tx, l.plain["meta_insert"], args{"version": first}); err != nil {
		return err
	}
	var m meta
	if err := l.query(ctx, tx, l.plain["meta_read"], nil, &m.version, &m.identity); err != nil {
		return err
	}
	if m.version > l.latest() {
		return l.fits(m.version)
	}
	for _, s := range steps {
		if s.version <= m.version {
			continue
		}
		if _, err := l.exec(ctx, tx, l.plain[s.name], nil); err != nil {
			return fmt.Errorf("schema version %d, %s: %w", s.version, s.name, err)
		}
		if last := !slices.ContainsFunc(steps, func(o step) bool { return o.version == s.version && o.order > s.order }); last {
			if _, err := l.exec(ctx, tx, l.plain["meta_version"], args{"version": s.version}); err != nil {
				return err
			}
		}
	}
	return nil
}

// DDL is the text of what Migrate runs in an empty database, for your own migrations: statements that end with a semicolon and a line's end,
// each with the comment that explains it (columns by their names without Config.ColumnPrefix). Run all of it, the insert at its end too: that names the log.
func DDL(d Dialect, cfg Config) (string, error) {
	cfg.Dialect = d
	if err := cfg.setDefaults(""); err != nil {
		return "", err
	}
	st, err := load(embedded, dialects[d], cfg, false)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	add := func(name, sql string) error {
		file, err := fs.ReadFile(embedded, string(d)+"/"+name+".sql")
		if err != nil || sql == "" {
			return err
		}
		for line := range strings.Lines(string(file)) {
			if strings.HasPrefix(line, "--") {
				b.WriteString(line)
			}
		}
		b.WriteString(sql + ";\n\n")
		return nil
	}
	for _, s := range st.steps() {
		if err := add(s.name, st[s.name].silent); err != nil {
			return "", err
		}
	}
	latest := st.steps()[len(st.steps())-1].version
	insert := st["meta_insert"].silent
	for _, mark := range []string{"$1", "?"} { // its one argument is the version
		insert = strings.Replace(insert, mark, strconv.Itoa(latest), 1)
	}
	return strings.TrimSpace(b.String()) + "\n\n" + insert + ";\n", nil
}
