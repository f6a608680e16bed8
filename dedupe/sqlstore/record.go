package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemq/idemq/dedupe"
)

// Execer is any transaction of the log's database: *sql.Tx, *sqlx.Tx, a *sql.Conn in a transaction, gorm's tx.Statement.ConnPool. PgxTx and ExecFunc
// make one of anything else.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// ExecFunc makes anything an Execer: run the query, with the placeholders of the log's dialect, and return how many rows it affected.
type ExecFunc func(ctx context.Context, query string, args ...any) (int64, error)

// ExecContext implements Execer.
func (f ExecFunc) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	n, err := f(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(n), nil
}

// PgxTx makes a native pgx transaction an Execer.
func PgxTx(tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
},
) Execer {
	return ExecFunc(func(ctx context.Context, query string, args ...any) (int64, error) {
		tag, err := tx.Exec(ctx, query, args...)
		return tag.RowsAffected(), err
	})
}

// Record writes the row of c in your own transaction, which must be in the log's database. As its first statement, so that a second
// run waits there and not on your rows; it waits as long as your transaction waits for locks.
//
// After any error, roll back and return it. dedupe.ErrDuplicate: the row is there and is not ours; the guard reads it outside and says
// Done, Dead or Busy. dedupe.ErrBusy: another run of the message is in its transaction. dedupe.ErrUnavailable: the database could
// not; the driver's error is wrapped too. dedupe.ErrNoClaim, ErrWrongMode, ErrNotRecorded, ErrRecorded: as Claim.Recordable.
//
// Nil is no proof of your commit: the guard looks for the row after the handler has returned, and where it is not there the message
// was not applied.
func (l *Log) Record(ctx context.Context, tx Execer, c *dedupe.Claim) error {
	fresh, err := l.RecordBatch(ctx, tx, []*dedupe.Claim{c})
	if err == nil && !fresh[0] {
		c.Note(dedupe.RowDuplicate)
		err = keyError("record", c.Key(), dedupe.ErrDuplicate)
	}
	return err
}

// RecordBatch is Record for many, row by row in the order of their keys. fresh[i] says whether message i is new: work on those, and leave
// the others alone, each of which the guard answers. The same key twice is fresh once.
func (l *Log) RecordBatch(ctx context.Context, tx Execer, cs []*dedupe.Claim) (fresh []bool, err error) {
	if err := l.recordable(cs); err != nil {
		return nil, err
	}
	st, err := l.statements(ctx)
	if err != nil {
		return nil, opError("record", "", err)
	}
	fresh = make([]bool, len(cs))
	for _, i := range byKey(cs) {
		c := cs[i]
		if fresh[i], err = l.recordRow(ctx, tx, st, c.RowToRecord()); err != nil {
			return nil, l.recordError(c, err)
		}
		if fresh[i] {
			c.Note(dedupe.RowWritten)
		} else {
			c.Note(dedupe.RowSkipped)
		}
	}
	return fresh, nil
}

func (l *Log) recordable(cs []*dedupe.Claim) error {
	for _, c := range cs {
		if err := c.Recordable(l); err != nil {
			return err
		}
	}
	return nil
}

// byKey is the one order in which rows are locked.
func byKey(cs []*dedupe.Claim) []int {
	order := make([]int, len(cs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return compareKeys(cs[a].Key(), cs[b].Key()) })
	return order
}

// recordRow is the two conditional statements: insert, or else update where that is allowed. Exactly one row means ours; MySQL counts
// two for an insert that met a row. The error is the driver's.
func (l *Log) recordRow(ctx context.Context, tx Execer, st statements, r dedupe.CompleteRequest) (ours bool, err error) {
	if err := checkComplete(r); err != nil {
		return false, err
	}
	a := keyArgs(r.Key).with(args{"owner": []byte(r.Owner)}).with(doneArgs(r))
	for _, name := range []string{"record_insert", "record_update"} {
		n, err := l.exec(ctx, tx, st[name], a)
		if err != nil || n == 1 {
			return n == 1, err
		}
	}
	return false, nil
}

// recordError says what the caller of Record may conclude from a driver's error: its transaction is not committed.
func (l *Log) recordError(c *dedupe.Claim, err error) error {
	switch f := l.d.failed(err, false); f.fault {
	case faultOther, faultData:
		return keyError("record", c.Key(), err)
	case faultLocked:
		return keyError("record", c.Key(), &dedupe.BusyError{Key: c.Key(), RetryIn: l.cfg.LockWait})
	default:
		return keyError("record", c.Key(), f)
	}
}
