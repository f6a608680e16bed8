package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"math/rand/v2"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// querier is a connection or a transaction.
type querier interface {
	Execer
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// alone runs f on one connection, where each statement commits by itself, within Timeout. f is run again as long as what failed surely
// was not done and may work now, so it must be one that may be repeated. f returns the errors of the driver as they are. The error is
// a *failure.
func (l *Log) alone(ctx context.Context, f func(context.Context, querier) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	return l.again(ctx, func() error {
		conn, err := l.connect(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() //nolint:errcheck // gives it back to the pool, which finds out by itself what it is worth
		if err := f(ctx, conn); err != nil {
			return l.d.failed(err, true)
		}
		return nil
	})
}

// together runs f in one transaction, within Timeout and with limits on locks, and commits. Repeated as alone. A failure with
// dedupe.ErrOutcomeUnknown is one of the commit.
func (l *Log) together(ctx context.Context, f func(context.Context, querier) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	return l.again(ctx, func() error {
		return l.transaction(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, l.ownLimits(), func(tx *sql.Tx) error { return f(ctx, tx) })
	})
}

// again runs try until it succeeds, fails for good, or Reruns are used up.
func (l *Log) again(ctx context.Context, try func() error) error {
	for run := 0; ; run++ {
		err := try()
		if !isFault(err, faultConflict) && !isFault(err, faultNotSent) || run >= l.cfg.Reruns {
			return err
		}
		if !pause(ctx, run) {
			return err
		}
	}
}

// connect takes a connection from the pool: whatever fails here was not sent.
func (l *Log) connect(ctx context.Context) (*sql.Conn, error) {
	conn, err := l.db.DB.Conn(ctx)
	if err != nil {
		return nil, l.d.notReached(err)
	}
	return conn, nil
}

// transaction runs f in a transaction on a connection of its own and commits it. f's errors are taken for the driver's.
func (l *Log) transaction(ctx context.Context, opts *sql.TxOptions, lim limits, f func(*sql.Tx) error) (err error) {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // as in alone
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return l.d.failed(err, false)
	}
	defer l.restore(ctx, conn)
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back; otherwise the connection's end does it
	if err := l.limit(ctx, tx, lim); err != nil {
		return l.d.failed(err, false)
	}
	if err := f(tx); err != nil {
		return l.d.failed(err, false)
	}
	if err := tx.Commit(); err != nil {
		discard(conn)
		return l.d.failed(err, true)
	}
	return nil
}

// discard closes the connection, and with it whatever its session still has open, instead of giving it back.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // that error is what closes it
}

// pause waits before run n+1; false when ctx ended.
func pause(ctx context.Context, run int) bool {
	wait := min(5*time.Millisecond<<min(run, 6), 200*time.Millisecond)
	t := time.NewTimer(wait/2 + rand.N(wait))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// exec runs a statement for its count.
func (l *Log) exec(ctx context.Context, q Execer, s statement, a args) (int64, error) {
	if s.silent == "" { // this dialect needs no such statement
		return 0, nil
	}
	values, err := s.bind(a)
	if err != nil {
		return 0, err
	}
	res, err := q.ExecContext(ctx, s.silent, values...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query runs a statement that returns one row; errors.Is(err, sql.ErrNoRows): none.
func (l *Log) query(ctx context.Context, q querier, s statement, a args, into ...any) error {
	values, err := s.bind(a)
	if err != nil {
		return err
	}
	return q.QueryRowContext(ctx, s.query, values...).Scan(into...)
}

// endedBefore is the failure of a call whose context had ended: nothing was sent.
func (l *Log) endedBefore(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return &failure{fault: faultRefused, conclude: dedupe.ErrUnavailable, cause: context.Cause(ctx)}
}
