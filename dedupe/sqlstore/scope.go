package sqlstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/idemq/idemq/dedupe"
)

// Enter implements dedupe.Log. With ErrWrongMode it returns the scope's row as it is.
func (l *Log) Enter(ctx context.Context, s dedupe.ScopeRow) (dedupe.ScopeRow, error) {
	kept := dedupe.ScopeRow{Scope: s.Scope}
	mode, err := s.Mode.MarshalText()
	if err != nil {
		return kept, opError("enter scope", s.Scope, err)
	}
	a := args{"scope": []byte(s.Scope), "mode": string(mode), "retention": s.Retention.Milliseconds()}
	var stored string
	err = l.ask(ctx, false, func(ctx context.Context, q querier, st statements) error {
		for _, name := range []string{"enter_insert", "enter_raise"} {
			if _, err := l.exec(ctx, q, st[name], a); err != nil {
				return err
			}
		}
		var retention int64
		err := l.query(ctx, q, st["enter_read"], a, &stored, &retention, &kept.Incarnation)
		kept.Retention = time.Duration(retention) * time.Millisecond
		return err
	})
	if err == nil {
		kept.Mode, err = dedupe.ParseMode(stored)
	}
	if err == nil && kept.Mode != s.Mode {
		err = fmt.Errorf("%w: it runs in %v, not %v; stop all of its processes and use ChangeMode", dedupe.ErrWrongMode, kept.Mode, s.Mode)
	}
	return kept, opError("enter scope", s.Scope, err)
}

// ChangeMode implements dedupe.Log.
func (l *Log) ChangeMode(ctx context.Context, scope string, m dedupe.Mode, a dedupe.Audit) error {
	mode, err := m.MarshalText()
	if err != nil {
		return opError("change mode of scope", scope, err)
	}
	var stored string
	err = l.ask(ctx, false, func(ctx context.Context, q querier, st statements) error {
		values := args{"scope": []byte(scope), "mode": string(mode), "reason": audit(a)}
		if _, err := l.exec(ctx, q, st["change_mode"], values); err != nil {
			return err
		}
		var retention int64
		var present string
		err := l.query(ctx, q, st["enter_read"], values, &stored, &retention, &present)
		if noRow(err) {
			return nil
		}
		return err
	})
	if err == nil && stored != string(mode) {
		err = errors.New("no such scope; its first process enters it")
	}
	return opError("change mode of scope", scope, err)
}

// Restored implements dedupe.Log.
func (l *Log) Restored(ctx context.Context, a dedupe.Audit) (inc dedupe.Incarnation, err error) {
	name := rand.Text()
	err = l.ask(ctx, true, func(ctx context.Context, q querier, st statements) error {
		n, err := l.exec(ctx, q, st["restored"], args{"incarnation": name, "reason": audit(a)})
		if err == nil && n != 1 {
			err = fmt.Errorf("the log's row was changed %d times", n)
		}
		if err != nil {
			return err
		}
		return l.query(ctx, q, st["heartbeat"], nil, &inc)
	})
	if err != nil {
		return "", opError("restored", "", err)
	}
	l.beat.forget()
	return inc, nil
}

// purgeChunk bounds how many rows one statement deletes, and so how long it locks them.
const purgeChunk = 500

// Purge implements dedupe.Log. Each statement deletes at most 500 rows and commits by itself; with an error the count is of those
// that surely are gone.
func (l *Log) Purge(ctx context.Context, scope string, staleAfter time.Duration, limit int) (purged int, err error) {
	if limit <= 0 || staleAfter < time.Millisecond {
		return 0, opError("purge scope", scope, fmt.Errorf("limit %d, staleAfter %v: at least 1 and 1ms", limit, staleAfter))
	}
	for _, name := range []string{"purge_done", "purge_stale"} {
		for purged < limit {
			most := min(limit-purged, purgeChunk)
			var n int64
			err := l.ask(ctx, true, func(ctx context.Context, q querier, st statements) (err error) {
				n, err = l.exec(ctx, q, st[name], args{"scope": []byte(scope), "stale_after": staleAfter.Milliseconds(), "limit": most})
				return err
			})
			if err != nil {
				return purged, opError("purge scope", scope, err)
			}
			purged += int(n)
			if int(n) < most {
				break
			}
		}
	}
	return purged, nil
}
