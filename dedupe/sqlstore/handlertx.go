package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"github.com/idemq/idemq/dedupe"
)

// handlerTx is one try of a transaction: the rows of the claims, then the work, then the commit.
type handlerTx struct {
	l     *Log
	st    statements
	cs    []*dedupe.Claim
	order []int            // by key
	known dedupe.Recording // of a row that was there before

	asked   []bool // whose row was asked for by this try
	fresh   []bool // and was written by it
	results [][]byte
	end     ending
}

// ending is what is known about a try.
type ending uint8

const (
	rolledBack    ending = iota // surely nothing is there
	runAgain                    // the same, because of others
	committed                   // surely all is there
	commitUnknown               // the commit was sent and not answered
	handlerEnded                // the handler ended it, by a rollback or a commit of its own
)

// inTx runs work in a transaction with the rows of cs, again after conflicts, and notes on the claims what became of their rows; known of
// those that were there before.
func (l *Log) inTx(ctx context.Context, cs []*dedupe.Claim, known dedupe.Recording, work func(tx *sqlx.Tx, fresh []bool) error) error {
	if err := l.recordable(cs); err != nil {
		return err
	}
	st, err := l.statements(ctx)
	if err != nil {
		return opError("in transaction", "", err)
	}
	for run := 0; ; run++ {
		t := &handlerTx{
			l: l, st: st, cs: cs, order: byKey(cs), known: known,
			asked: make([]bool, len(cs)), fresh: make([]bool, len(cs)), results: make([][]byte, len(cs)),
		}
		err := t.try(ctx, work)
		if t.end == runAgain && run < l.cfg.Reruns && pause(ctx, run) {
			continue
		}
		return t.settle(ctx, err)
	}
}

// try makes one transaction. A panic of work goes on after the rollback.
func (t *handlerTx) try(ctx context.Context, work func(tx *sqlx.Tx, fresh []bool) error) error {
	l := t.l
	conn, err := l.db.Connx(ctx)
	if err != nil {
		return opError("begin", "", l.d.notReached(err))
	}
	defer conn.Close() //nolint:errcheck // gives it back to the pool
	tx, err := conn.BeginTxx(ctx, l.cfg.Tx)
	if err != nil {
		return opError("begin", "", t.failed(err))
	}
	defer l.restore(ctx, conn.Conn)
	defer tx.Rollback() //nolint:errcheck // nothing to roll back after the commit; otherwise the end of the session does it
	if err := l.limit(ctx, tx, l.handlerLimits(ctx)); err != nil {
		return opError("begin", "", t.failed(err))
	}
	for _, i := range t.order {
		r := t.cs[i].RowToRecord()
		if t.fresh[i], err = l.recordRow(ctx, tx, t.st, r); err != nil {
			t.failed(err)
			return l.recordError(t.cs[i], err)
		}
		t.asked[i], t.results[i] = true, r.Result
	}
	if err := work(tx, t.fresh); err != nil {
		return t.workFailed(ctx, tx, err)
	}
	if ctx.Err() != nil { // the handler took longer than it had: its own failure, and no commit is sent
		return opError("commit", "", fmt.Errorf("not sent: %w", context.Cause(ctx)))
	}
	if err := t.finish(ctx, conn.Conn, tx); err != nil {
		return err
	}
	t.note(dedupe.CommitUnknown) // as long as nobody has answered
	if err := tx.Commit(); err != nil {
		discard(conn.Conn)
		if t.endedByHandler(ctx, err) {
			return keyError("record", t.cs[0].Key(), errRowGone)
		}
		return t.commitFailed(err)
	}
	t.end = committed
	return nil
}

// failed sorts an error of our own statements before the commit.
func (t *handlerTx) failed(err error) *failure {
	f := t.l.d.failed(err, false)
	if f.fault == faultConflict || f.fault == faultNotSent {
		t.end = runAgain
	}
	return f
}

// workFailed sorts the error of a handler: its own, or the database's. Only codes tell, and the rollback, which fails where the
// connection is gone: an error of a network may be that of any other service.
func (t *handlerTx) workFailed(ctx context.Context, tx *sqlx.Tx, err error) error {
	if ctx.Err() != nil {
		return err // the handler's time was over, or it was stopped: the context says which
	}
	f := t.l.d.fault(err)
	if errors.Is(err, driver.ErrBadConn) {
		f = faultNotSent
	}
	switch f {
	case faultConflict:
		t.end = runAgain
	case faultNotSent, faultRefused, faultLocked, faultCut:
	default:
		if back := tx.Rollback(); back == nil || t.endedByHandler(ctx, back) {
			return err
		}
	}
	return opError("in transaction", "", &failure{fault: f, conclude: dedupe.ErrUnavailable, cause: err})
}

// finish writes the results that the handler set, and looks whether the rows are still there where a commit would not say.
func (t *handlerTx) finish(ctx context.Context, conn *sql.Conn, tx *sqlx.Tx) error {
	looked := !t.l.d.commitHides
	if t.l.d.endHides {
		in, known := inTransaction(conn)
		if known && !in {
			t.end = handlerEnded
			return keyError("record", t.cs[0].Key(), errRowGone)
		}
		looked = known
	}
	for _, i := range t.order {
		if !t.fresh[i] {
			continue
		}
		c := t.cs[i]
		ours := true
		var err error
		switch result := c.Result(); {
		case !bytes.Equal(result, t.results[i]):
			if err := checkResult(result); err != nil {
				return keyError("record", c.Key(), err)
			}
			var n int64
			n, err = t.l.exec(ctx, tx, t.st["record_result"], keyArgs(c.Key()).with(args{"owner": []byte(c.Owner()), "result": result}))
			ours = n == 1
		case !looked:
			var r row
			r, err = t.l.read(ctx, tx, t.st, c.Key())
			ours = r.State == dedupe.StateDone && r.Owner == c.Owner()
		}
		looked = true
		switch {
		case err != nil && !t.endedByHandler(ctx, err):
			return opError("in transaction", "", t.failed(err))
		case err != nil, !ours:
			return keyError("record", c.Key(), errRowGone)
		}
	}
	return nil
}

// inTransaction says whether the session of conn is in a transaction, where the driver is one that knows it without asking the server.
func inTransaction(conn *sql.Conn) (in, known bool) {
	err := conn.Raw(func(c any) error {
		if c, ok := c.(*stdlib.Conn); ok {
			in, known = c.Conn().PgConn().TxStatus() != 'I', true
		}
		return nil
	})
	return in, known && err == nil
}

// errRowGone: the row that was written first is not in the transaction any more.
var errRowGone = errors.New("the database rolled the transaction back before its end: the handler swallowed the error of a statement, or ended the transaction itself; return such errors")

// endedByHandler sorts an error of a statement or of the end: while ctx is alive nobody but the handler ends the transaction.
func (t *handlerTx) endedByHandler(ctx context.Context, err error) bool {
	ended := errors.Is(err, sql.ErrTxDone) && ctx.Err() == nil
	if ended {
		t.end = handlerEnded
	}
	return ended
}

// commitFailed sorts the error of a commit.
func (t *handlerTx) commitFailed(err error) error {
	f := t.l.d.failed(err, true)
	switch f.fault {
	case faultConflict:
		t.end = runAgain
	case faultData:
		if t.l.d.commitHides { // an error that is not known to be a rollback
			t.end, f.conclude = commitUnknown, dedupe.ErrOutcomeUnknown
			break
		}
		return fmt.Errorf("sqlstore: commit: rolled back: %w", err) // a deferred constraint: the handler's own
	case faultNotSent, faultRefused, faultLocked:
	default:
		t.end = commitUnknown
	}
	return opError("commit", "", f)
}

// settle notes the end on the claims and says what the handler returns.
func (t *handlerTx) settle(ctx context.Context, err error) error {
	switch t.end {
	case commitUnknown:
		t.end = t.look(ctx)
		if t.end == committed {
			err = nil
		}
	case handlerEnded:
		// Where no row is to be seen it is the handler's own failure. Should a commit of the handler's be under way all the same, then release
		// and bury, which insert the same key, wait for its row and find it.
		t.end = t.look(ctx)
		switch {
		case t.end != committed:
			t.end = rolledBack
		case errors.Is(err, errRowGone):
			err = nil
		}
	}
	switch t.end {
	case committed:
		t.note(dedupe.RowCommitted)
	case commitUnknown:
		t.note(dedupe.CommitUnknown)
	default:
		t.note(dedupe.NotRecorded)
	}
	// Rows that were there before: another's, or of this very delivery, whose earlier commit was not known.
	for i, c := range t.cs {
		if t.fresh[i] || !t.asked[i] || t.end != committed && t.twin(i) {
			continue // ours; never asked; or the twin of one that is rolled back
		}
		c.Note(t.known)
		if len(t.cs) == 1 && t.own(ctx, c) {
			c.Note(dedupe.RowCommitted)
			return nil
		}
	}
	return err
}

// note tells the claims whose rows this try wrote.
func (t *handlerTx) note(r dedupe.Recording) {
	for i, c := range t.cs {
		if t.fresh[i] {
			c.Note(r)
		}
	}
}

// twin: the same key was fresh elsewhere in this batch.
func (t *handlerTx) twin(i int) bool {
	for j, c := range t.cs {
		if t.fresh[j] && c.Key() == t.cs[i].Key() {
			return true
		}
	}
	return false
}

// own: the committed row is that of c. Not to be known counts as no: the guard looks again.
func (t *handlerTx) own(ctx context.Context, c *dedupe.Claim) bool {
	r, err := t.row(ctx, c)
	return err == nil && r.State == dedupe.StateDone && r.Owner == c.Owner()
}

func (t *handlerTx) row(ctx context.Context, c *dedupe.Claim) (r row, err error) {
	err = t.l.alone(ctx, func(ctx context.Context, q querier) (err error) {
		r, err = t.l.read(ctx, q, t.st, c.Key())
		return err
	})
	return r, err
}

// absentLooks is how often a row may be missed before looking is given up: a server that lost its client commits late or never, and
// no plain read can tell.
const absentLooks = 3

// look asks on other connections whether a commit without an answer took place. The rows end together, so one of them tells.
func (t *handlerTx) look(ctx context.Context) ending {
	ctx, cancel := context.WithTimeout(ctx, t.l.cfg.TxLimit)
	defer cancel()
	var c *dedupe.Claim
	for i := range t.cs {
		if t.fresh[i] {
			c = t.cs[i]
		}
	}
	if c == nil { // nothing was written
		return rolledBack
	}
	for run, absent := 0, 0; absent < absentLooks; run++ {
		r, err := t.row(ctx, c)
		switch {
		case err != nil: // asked again as long as the context lets us
		case r.State == dedupe.StateDone && r.Owner == c.Owner():
			return committed
		default:
			absent++
		}
		if !pause(ctx, run) {
			break
		}
	}
	return commitUnknown
}
