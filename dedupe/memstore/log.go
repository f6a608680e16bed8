package memstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Log is a dedupe.Log in memory, and a small database beside it: names with values, changed by transactions (Tx) that may write a
// message's row too. Safe for concurrent use.
type Log struct {
	*book
	scopes  map[string]dedupe.ScopeRow
	values  map[string]value
	commits int // numbers the commits
}

var _ dedupe.Log = (*Log)(nil)

// NewLog returns an empty Log that lives by time.Now.
func NewLog() *Log { return NewLogWithClock(time.Now) }

// NewLogWithClock returns an empty Log that lives by now, which is asked once for each call and must be safe for concurrent use.
func NewLogWithClock(now func() time.Time) *Log {
	return &Log{
		book:   &book{clock: now, isLog: true, rows: map[dedupe.Key]row{}, incarnation: newIncarnation()},
		scopes: map[string]dedupe.ScopeRow{},
		values: map[string]value{},
	}
}

func newIncarnation() dedupe.Incarnation { return dedupe.Incarnation(rand.Text()) }

// Learn implements dedupe.Store: a log knows, and is not told.
func (l *Log) Learn(_ context.Context, recs []dedupe.Record, _ time.Duration) []error {
	errs := make([]error, len(recs))
	for i, rec := range recs {
		errs[i] = opError("learn", rec.Key, errors.ErrUnsupported)
	}
	return errs
}

// Enter implements dedupe.Log. With ErrWrongMode it returns the scope's row as it is.
func (l *Log) Enter(ctx context.Context, s dedupe.ScopeRow) (dedupe.ScopeRow, error) {
	if err := ended(ctx); err != nil {
		return dedupe.ScopeRow{}, scopeError("enter", s.Scope, err)
	}
	if err := validMode(s.Mode); err != nil {
		return dedupe.ScopeRow{}, scopeError("enter", s.Scope, err)
	}
	_, unlock := l.lock()
	defer unlock()
	kept, found := l.scopes[s.Scope]
	if !found {
		kept = s
	}
	kept.Incarnation = l.incarnation
	if kept.Mode != s.Mode {
		return kept, scopeError("enter", s.Scope, fmt.Errorf("%w: it runs in %v, not %v; stop all of its processes and use ChangeMode", dedupe.ErrWrongMode, kept.Mode, s.Mode))
	}
	kept.Retention = max(kept.Retention, s.Retention)
	l.scopes[s.Scope] = kept
	return kept, nil
}

// ChangeMode implements dedupe.Log.
func (l *Log) ChangeMode(ctx context.Context, scope string, m dedupe.Mode, _ dedupe.Audit) error {
	if err := ended(ctx); err != nil {
		return scopeError("change mode of", scope, err)
	}
	if err := validMode(m); err != nil {
		return scopeError("change mode of", scope, err)
	}
	_, unlock := l.lock()
	defer unlock()
	kept, found := l.scopes[scope]
	if !found {
		return scopeError("change mode of", scope, errors.New("no such scope; Enter writes its row"))
	}
	kept.Mode = m
	l.scopes[scope] = kept
	return nil
}

// Incarnation implements dedupe.Log.
func (l *Log) Incarnation(ctx context.Context) (dedupe.Incarnation, error) {
	if err := ended(ctx); err != nil {
		return "", fmt.Errorf("memstore: incarnation: %w", err)
	}
	_, unlock := l.lock()
	defer unlock()
	return l.incarnation, nil
}

// Restored implements dedupe.Log.
func (l *Log) Restored(ctx context.Context, _ dedupe.Audit) (dedupe.Incarnation, error) {
	if err := ended(ctx); err != nil {
		return "", fmt.Errorf("memstore: restored: %w", err)
	}
	_, unlock := l.lock()
	defer unlock()
	l.incarnation = newIncarnation()
	return l.incarnation, nil
}

// Purge implements dedupe.Log.
func (l *Log) Purge(ctx context.Context, scope string, staleAfter time.Duration, limit int) (int, error) {
	if err := ended(ctx); err != nil {
		return 0, scopeError("purge", scope, err)
	}
	if limit <= 0 || staleAfter <= 0 {
		return 0, scopeError("purge", scope, fmt.Errorf("limit %d, staleAfter %v: both are more than 0", limit, staleAfter))
	}
	view, unlock := l.lock()
	defer unlock()
	purged := 0
	for k, r := range l.rows {
		if purged == limit {
			break
		}
		if k.Scope() == scope && view.purgeable(r, staleAfter) {
			delete(l.rows, k)
			purged++
		}
	}
	return purged, nil
}

func (b at) purgeable(r row, staleAfter time.Duration) bool {
	stale := !b.now.Before(r.UpdatedAt.Add(staleAfter))
	switch r.State {
	case dedupe.StateDone:
		return !b.now.Before(r.ExpiresAt)
	case dedupe.StateFree:
		return stale
	case dedupe.StateClaimed:
		return stale && !b.now.Before(r.leaseEnd)
	default:
		return false
	}
}

// Identity implements dedupe.Log.
func (l *Log) Identity() any { return l.book }

// LogSnapshot is a backup of a Log: rows, scopes, incarnation and values of one moment.
type LogSnapshot struct {
	rows        map[dedupe.Key]row
	scopes      map[string]dedupe.ScopeRow
	values      map[string]value
	incarnation dedupe.Incarnation
}

// Snapshot is a backup of l as it is now.
func (l *Log) Snapshot() LogSnapshot {
	view, unlock := l.lock()
	defer unlock()
	return LogSnapshot{rows: view.copied(), scopes: maps.Clone(l.scopes), values: maps.Clone(l.values), incarnation: l.incarnation}
}

// RestoreFrom takes l back to the backup, its incarnation too, as a dump restored into the same server does: whoever restores a log
// calls Restored next.
func (l *Log) RestoreFrom(snap LogSnapshot) {
	_, unlock := l.lock()
	defer unlock()
	l.rows, l.scopes, l.values = maps.Clone(snap.rows), maps.Clone(snap.scopes), maps.Clone(snap.values)
	l.incarnation = snap.incarnation
}

func validMode(m dedupe.Mode) error {
	_, err := m.MarshalText()
	return err
}

func scopeError(op, scope string, err error) error {
	return fmt.Errorf("memstore: %s scope %q: %w", op, scope, err)
}
