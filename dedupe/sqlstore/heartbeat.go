package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// heartbeatEvery is how long an incarnation that was read counts as known.
const heartbeatEvery = time.Second

// heartbeat is what is known of the log's incarnation, and the connection on which it was asked. A connection that breaks is a sign that
// the server may be another one, and what it said is forgotten with it.
type heartbeat struct {
	turn chan struct{} // holds one token: whoever has it may use the rest

	conn  *sql.Conn
	known dedupe.Incarnation
	asked time.Time // when the question for known was sent, on the monotonic clock
}

func newHeartbeat() heartbeat {
	b := heartbeat{turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b
}

func (b *heartbeat) forget() {
	<-b.turn
	b.asked = time.Time{}
	b.turn <- struct{}{}
}

func (b *heartbeat) close() error {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	b.asked = time.Time{}
	if b.conn == nil {
		return nil
	}
	conn := b.conn
	b.conn = nil
	return conn.Close()
}

// Incarnation implements dedupe.Log. It is read at most once a second, by the caller that needs it, on one connection of the pool that is
// kept for it; if that connection is cut, it is read on another. An error means that nobody knows.
func (l *Log) Incarnation(ctx context.Context) (dedupe.Incarnation, error) {
	if err := l.endedBefore(ctx); err != nil {
		return "", opError("incarnation", "", err)
	}
	st, err := l.statements(ctx)
	if err != nil {
		return "", opError("incarnation", "", err)
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timeout)
	defer cancel()
	b := &l.beat
	select {
	case <-b.turn:
		defer func() { b.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", opError("incarnation", "", l.endedBefore(ctx))
	}
	if !b.asked.IsZero() && time.Since(b.asked) < heartbeatEvery {
		return b.known, nil
	}
	sent := time.Now()
	var inc dedupe.Incarnation
	ask := func(ctx context.Context, q querier) error { return l.query(ctx, q, st["heartbeat"], nil, &inc) }
	if l.d.ownHeartbeat {
		err = l.askKept(ctx, b, ask)
	} else {
		err = l.alone(ctx, ask)
	}
	if err != nil {
		b.asked = time.Time{}
		return "", opError("incarnation", "", err)
	}
	b.known, b.asked = inc, sent
	return inc, nil
}

// askKept asks on the kept connection, and if that is broken on a new one.
func (l *Log) askKept(ctx context.Context, b *heartbeat, ask func(context.Context, querier) error) error {
	for fresh := false; ; {
		if b.conn == nil {
			conn, err := l.connect(ctx)
			if err != nil {
				return err
			}
			b.conn, fresh = conn, true
		}
		err := ask(ctx, b.conn)
		if err == nil {
			return nil
		}
		discard(b.conn)
		b.conn = nil
		if fresh || ctx.Err() != nil {
			return l.d.failed(err, false)
		}
	}
}
