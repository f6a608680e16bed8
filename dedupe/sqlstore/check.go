package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idemq/idemq/dedupe"
)

var foundRowsFinding = dedupe.Finding{
	Refuse: true, Code: "client-found-rows",
	What:   "the connection counts rows that an update found, not rows that it changed, so a duplicate would look new",
	Remedy: "remove clientFoundRows=true from the data source name",
}

// Check implements dedupe.Store: it refuses tables and settings on which the promises do not hold, all at once. The tables and
// the connection are not changed.
func (l *Log) Check(ctx context.Context, env dedupe.CheckEnv) ([]dedupe.Finding, error) {
	if l.problem != nil {
		return nil, l.problem
	}
	if err := l.endedBefore(ctx); err != nil {
		return nil, opError("check", "", err)
	}
	fs := l.checkPool(env)
	m, err := l.readMeta(ctx)
	if err == nil {
		err = l.fits(m.version)
	}
	if errors.Is(err, ErrSchema) {
		code := "log-not-migrated"
		if m.version > l.latest() {
			code = "log-schema-newer"
		}
		what, remedy, _ := cutLast(strings.TrimPrefix(err.Error(), ErrSchema.Error()+": "), "; ")
		return append(fs, dedupe.Finding{Refuse: true, Code: code, What: what, Remedy: remedy}), nil
	}
	if err != nil {
		return fs, opError("check", "", err)
	}
	shape, err := l.checkColumns(ctx)
	if err != nil {
		return fs, opError("check", "", err)
	}
	fs = append(fs, shape...)
	durable, err := l.checkDurable(ctx, env.Mode)
	if err != nil {
		return fs, opError("check", "", err)
	}
	fs = append(fs, durable...)
	switch n, err := l.probe(ctx); {
	case isFault(err, faultRefused):
		return append(fs, dedupe.Finding{
			Refuse: true, Code: "log-read-only", What: fmt.Sprintf("the database does not take writes: %v", unwrapped(err)),
			Remedy: "connect to the primary, with a role that may write",
		}), nil
	case err != nil:
		return fs, opError("check", "", err)
	case l.d.foundRows && n == 1:
		return append(fs, foundRowsFinding), nil
	}
	if len(shape) > 0 {
		return fs, nil
	}
	// The expression of the incarnation, as every statement will use it.
	if _, err := l.Incarnation(ctx); err != nil {
		return fs, opError("check", "", err)
	}
	return fs, nil
}

func (l *Log) checkPool(env dedupe.CheckEnv) (fs []dedupe.Finding) {
	open := l.db.Stats().MaxOpenConnections
	if l.d.ownHeartbeat && open > 0 && env.Concurrency > 0 && open <= env.Concurrency+1 {
		fs = append(fs, dedupe.Finding{
			Refuse: true, Code: "pool-too-small",
			What:   fmt.Sprintf("the pool has at most %d connections for %d handlers, the renewal of claims and the heartbeat", open, env.Concurrency),
			Remedy: fmt.Sprintf("SetMaxOpenConns(%d) or more, and SetMaxIdleConns to the same", env.Concurrency+2),
		})
	}
	if env.Lease > 0 && env.Mode == dedupe.Logged && env.Lease < 3*l.cfg.Timeout {
		fs = append(fs, dedupe.Finding{
			Code:   "log-timeout-above-lease",
			What:   fmt.Sprintf("a call to the log may take %v, and a lease of %v is renewed after a third", l.cfg.Timeout, env.Lease),
			Remedy: "lower sqlstore.Config.Timeout to a third of the lease, or raise the lease",
		})
	}
	return fs
}

// column is one of a table, as check_columns.sql describes it.
type column struct {
	name, declared string
	exact          bool  // bytes, compared as bytes
	size           int64 // bytes; 0: no limit
	keyPart        int   // from 1; 0: not in the primary key
}

func (l *Log) columns(ctx context.Context, table string) (cols []column, err error) {
	s := l.plain["check_columns"]
	values, err := s.bind(args{"schema": l.cfg.Schema, "table": table})
	if err != nil {
		return nil, err
	}
	err = l.alone(ctx, func(ctx context.Context, q querier) error {
		cols = nil
		rows, err := q.QueryContext(ctx, s.query, values...)
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // Err says what went wrong
		for rows.Next() {
			var c column
			if err := rows.Scan(&c.name, &c.declared, &c.exact, &c.size, &c.keyPart); err != nil {
				return err
			}
			cols = append(cols, c)
		}
		return rows.Err()
	})
	return cols, err
}

// keyColumns are the primary key of the log, with the bytes that each must hold.
var keyColumns = []column{
	{name: "scope", size: dedupe.MaxScopeBytes}, {name: "namespace", size: dedupe.MaxIDBytes}, {name: "msg_id", size: dedupe.MaxIDBytes},
}

// otherColumns must be there. size is the least; exact ones are compared, or hold any bytes.
var otherColumns = []column{
	{name: "state"},
	{name: "owner", exact: true, size: 32},
	{name: "fence"},
	{name: "lease_until"},
	{name: "failures"},
	{name: "deaths"},
	{name: "alone_deaths"},
	{name: "alone"},
	{name: "generation"},
	{name: "incarnation"},
	{name: "fingerprint", exact: true, size: 20},
	{name: "result"},
	{name: "reason"},
	{name: "original"},
	{name: "created_at"},
	{name: "updated_at"},
	{name: "expires_at"},
}

// metaColumns are those that only the other table has.
var metaColumns = []string{"schema_version", "identity", "mode", "retention"}

// checkColumns compares the log's table with what the statements rely on.
func (l *Log) checkColumns(ctx context.Context) (fs []dedupe.Finding, err error) {
	cols, err := l.columns(ctx, l.cfg.Table)
	if err != nil {
		return nil, err
	}
	refuse := func(code, remedy, format string, a ...any) {
		fs = append(fs, dedupe.Finding{Refuse: true, Code: code, What: fmt.Sprintf(format, a...), Remedy: remedy})
	}
	if len(cols) == 0 {
		refuse("log-not-migrated", "run Migrate, or the DDL", "no table %s", l.cfg.Table)
		return fs, nil
	}
	remake := "make the table by Migrate or the DDL, and copy the rows"
	find := func(name string) (column, bool) {
		i := slices.IndexFunc(cols, func(c column) bool { return c.name == name })
		if i < 0 {
			return column{}, false
		}
		return cols[i], true
	}
	for i, want := range append(slices.Clone(keyColumns), otherColumns...) {
		isKey := i < len(keyColumns)
		want.name = l.cfg.ColumnPrefix + want.name
		c, ok := find(want.name)
		switch {
		case !ok:
			refuse("log-column-missing", remake, "table %s has no column %s", l.cfg.Table, want.name)
		case (isKey || want.exact) && !c.exact:
			refuse("id-column-folds", remake, "column %s.%s is %s, which may take two ids for one (case, accents, trailing spaces) or refuse one; it must be bytes and not null", l.cfg.Table, c.name, c.declared)
		case c.size > 0 && c.size < want.size:
			refuse("log-column-short", remake, "column %s.%s is %s and must hold %d bytes", l.cfg.Table, c.name, c.declared, want.size)
		}
		if ok && isKey && c.keyPart != i+1 {
			refuse("log-key-missing", remake, "%s is not part %d of the primary key of table %s, which must be %s", c.name, i+1, l.cfg.Table, prefixColumns("scope, namespace, msg_id", l.cfg.ColumnPrefix))
		}
	}
	for _, c := range cols {
		if c.keyPart > len(keyColumns) {
			refuse("log-key-missing", remake, "%s is part of the primary key of table %s, so that the same id may come in twice", c.name, l.cfg.Table)
		}
	}
	return fs, nil
}

// cutLast is strings.Cut at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// unwrapped is the cause of a failure, without what may be concluded.
func unwrapped(err error) error {
	var f *failure
	if errors.As(err, &f) {
		return f.cause
	}
	return err
}
