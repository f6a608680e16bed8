package sqlstore

import (
	"context"
	"database/sql"
	"time"
)

// limits of a transaction, kept by the server even when this process is cut off from it. See tx_limits.sql.
type limits struct{ lock, statement, idle time.Duration }

// ownLimits are those of the log's own transactions: short.
func (l *Log) ownLimits() limits {
	return limits{lock: l.cfg.Timeout / 2, statement: l.cfg.Timeout, idle: l.cfg.Timeout + time.Second}
}

// handlerLimits are those of a transaction in which a handler works.
func (l *Log) handlerLimits(ctx context.Context) limits {
	left := l.cfg.TxLimit
	if end, ok := ctx.Deadline(); ok {
		left = max(time.Until(end), 0) + time.Second
	}
	return limits{lock: min(l.cfg.LockWait, left), statement: left, idle: left}
}

// limit sets the limits inside tx.
func (l *Log) limit(ctx context.Context, tx querier, lim limits) error {
	_, err := l.exec(ctx, tx, l.plain["tx_limits"], args{
		"lock_ms": max(lim.lock.Milliseconds(), 1), "statement_ms": max(lim.statement.Milliseconds(), 1), "idle_ms": max(lim.idle.Milliseconds(), 1),
	})
	return err
}

// restoring bounds the way back to the session's own limits.
const restoring = time.Second

// restore takes the limits off the session after the transaction; a connection that cannot be mended is closed.
func (l *Log) restore(ctx context.Context, conn *sql.Conn) {
	if l.plain["tx_restore"].silent == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoring)
	defer cancel()
	if _, err := l.exec(ctx, conn, l.plain["tx_restore"], nil); err != nil {
		discard(conn)
	}
}
