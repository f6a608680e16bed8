package sqlstore

import (
	"context"

	"github.com/idemq/idemq/dedupe"
)

// Inspect implements dedupe.Store.
func (l *Log) Inspect(ctx context.Context, keys []dedupe.Key) ([]dedupe.Record, error) {
	recs := make([]dedupe.Record, len(keys))
	err := l.ask(ctx, false, func(ctx context.Context, q querier, st statements) error {
		for i, k := range keys {
			r, err := l.read(ctx, q, st, k)
			if err != nil {
				return err
			}
			recs[i] = r.Record
		}
		return nil
	})
	if err != nil {
		return nil, opError("inspect", "", err)
	}
	return recs, nil
}

// Reopen implements dedupe.Store.
func (l *Log) Reopen(ctx context.Context, k dedupe.Key, a dedupe.Audit) (dedupe.Record, error) {
	var now row
	var wrote bool
	err := l.ask(ctx, l.d.readsAfter(), func(ctx context.Context, q querier, st statements) (err error) {
		values := keyArgs(k).with(args{"fingerprint": make([]byte, len(dedupe.Fingerprint{})), "reason": audit(a)})
		now, wrote, err = l.write(ctx, q, st, "reopen", k, values)
		return err
	})
	if err == nil && !wrote {
		err = dedupe.ErrNotDead
	}
	return now.Record, keyError("reopen", k, err)
}

// Forget implements dedupe.Store. A key that is absent is no error. Who and why is kept with the scope, since the row is gone.
func (l *Log) Forget(ctx context.Context, k dedupe.Key, a dedupe.Audit) error {
	var now row
	err := l.ask(ctx, true, func(ctx context.Context, q querier, st statements) error {
		n, err := l.exec(ctx, q, st["forget"], keyArgs(k))
		if err != nil {
			return err
		}
		if n == 1 {
			_, err = l.exec(ctx, q, st["audit"], args{"scope": []byte(k.Scope()), "reason": text("forget " + k.String() + " by " + audit(a))})
			return err
		}
		now, err = l.read(ctx, q, st, k)
		return err
	})
	switch {
	case isFault(err, faultLocked):
		return keyError("forget", k, &dedupe.BusyError{Key: k, RetryIn: l.cfg.Timeout})
	case err == nil && now.State == dedupe.StateClaimed:
		return keyError("forget", k, &dedupe.BusyError{Key: k, RetryIn: now.LeaseLeft})
	}
	return keyError("forget", k, err)
}

// ask runs f with the statements that fit the tables, alone or in one transaction. The error is for opError or keyError to wrap.
func (l *Log) ask(ctx context.Context, inTx bool, f func(context.Context, querier, statements) error) error {
	if err := l.endedBefore(ctx); err != nil {
		return err
	}
	st, err := l.statements(ctx)
	if err != nil {
		return err
	}
	run := l.alone
	if inTx {
		run = l.together
	}
	return run(ctx, func(ctx context.Context, q querier) error { return f(ctx, q, st) })
}
