package sqlstore

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/idemq/idemq/dedupe"
)

// Transactional makes a handler of fn: fn gets a transaction in which the row of the message is written already, and commit and rollback
// are ours, so that the row and the work end together. fn does not run for a message whose row is there. It is the form in
// which nobody can forget to record:
//
//	consumer.Config{Handler: sqlstore.Transactional(idem, decrement)}
//
// fn may run more than once: after a deadlock or a serialization failure the transaction is rolled back and begun again. So it does
// nothing outside of tx, and leaves behind what its last run set. It does not commit or roll back itself, and it returns the errors of its
// statements: a deadlock that is swallowed has rolled back the row too. A transaction that it ended all the same is looked up: committed with
// the row it is done, else it is a failure of the handler's own, also where it returned nil.
//
// The handler's errors are as those of Log.InTx.
func Transactional[M dedupe.Holder](l *Log, fn func(ctx context.Context, tx *sqlx.Tx, m M) error) func(context.Context, M) error {
	return func(ctx context.Context, m M) error {
		return l.oneInTx(ctx, m.Claim(), func(tx *sqlx.Tx) error { return fn(ctx, tx, m) })
	}
}

// InTx is Transactional where the handler is far away: the claim comes from ctx. dedupe.ErrNoClaim when there is none.
//
// Nil: committed, the row and the work. Otherwise nothing is, but for dedupe.ErrOutcomeUnknown: the reply to the commit was lost and
// the row is not to be seen yet. dedupe.ErrDuplicate: the row is there and is not ours, fn did not run. dedupe.ErrBusy: another run
// of the message is in its transaction. dedupe.ErrUnavailable: the database could not; codes of connections, locks, deadlocks and
// serialization inside fn count as that too, once Reruns are used up. Else it is fn's own error. dedupe.ErrRecorded: the claim's commit is
// known already. Return what you get: the guard knows what became of the row, whatever is returned.
func (l *Log) InTx(ctx context.Context, fn func(tx *sqlx.Tx) error) error {
	c, ok := dedupe.ClaimFrom(ctx)
	if !ok {
		return opError("in transaction", "", dedupe.ErrNoClaim)
	}
	return l.oneInTx(ctx, c, fn)
}

func (l *Log) oneInTx(ctx context.Context, c *dedupe.Claim, fn func(tx *sqlx.Tx) error) error {
	return l.inTx(ctx, []*dedupe.Claim{c}, dedupe.RowDuplicate, func(tx *sqlx.Tx, fresh []bool) error {
		if !fresh[0] {
			return keyError("record", c.Key(), dedupe.ErrDuplicate)
		}
		return fn(tx)
	})
}

// TransactionalBatch is Transactional for many messages in one transaction: the rows are written first, in the order of their keys, and
// fn sees the new messages only, in the order in which they came. It does not run when none is new. Messages that are not new are
// answered by the guard, each for itself. Any error rolls everything back: what fails for one message fails for all, and the pipeline
// splits the batch.
func TransactionalBatch[M dedupe.Holder](l *Log, fn func(ctx context.Context, tx *sqlx.Tx, fresh []M) error) func(context.Context, []M) error {
	return func(ctx context.Context, ms []M) error {
		if len(ms) == 0 {
			return nil
		}
		cs := make([]*dedupe.Claim, len(ms))
		for i, m := range ms {
			cs[i] = m.Claim()
		}
		return l.inTx(ctx, cs, dedupe.RowSkipped, func(tx *sqlx.Tx, fresh []bool) error {
			var news []M
			for i, m := range ms {
				if fresh[i] {
					news = append(news, m)
				}
			}
			if len(news) == 0 {
				return nil
			}
			return fn(ctx, tx, news)
		})
	}
}
