package memstore

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/idemq/idemq/dedupe"
)

// value is what a name has in a Log's small database, and the number of the commit that wrote it; numbers are not used again, not
// even after a restore.
type value struct {
	is     any
	commit int
}

// errConflict: another transaction wrote what this one read or wrote. Nothing was done, and no handler is to blame.
var errConflict = fmt.Errorf("memstore: commit: another transaction was first: %w", dedupe.ErrUnavailable)

// errEnded: the transaction is over.
var errEnded = errors.New("memstore: commit: transaction has ended")

// Tx is a transaction of a Log: changes of values, and rows of messages, that take effect together or not at all. It sees its own
// changes and otherwise what is committed. For one goroutine.
type Tx struct {
	log    *Log
	read   map[string]int // the commit that wrote what was looked at; 0: none
	set    map[string]any
	rows   []dedupe.CompleteRequest
	closed bool
}

// Begin starts a transaction, to be ended by Commit or by forgetting it.
func (l *Log) Begin() *Tx { return &Tx{log: l, read: map[string]int{}, set: map[string]any{}} }

// Get is the value that name has, nil if none. Values are shared: do not change what they point to.
func (tx *Tx) Get(name string) any {
	if v, ok := tx.set[name]; ok {
		return v
	}
	return tx.see(name)
}

// Set gives name a value.
func (tx *Tx) Set(name string, v any) {
	tx.see(name)
	tx.set[name] = v
}

func (tx *Tx) see(name string) any {
	_, unlock := tx.log.lock()
	defer unlock()
	v := tx.log.values[name]
	if _, ok := tx.read[name]; !ok {
		tx.read[name] = v.commit
	}
	return v.is
}

// Value is the committed value of name, nil if none.
func (l *Log) Value(name string) any {
	_, unlock := l.lock()
	defer unlock()
	return l.values[name].is
}

// Record writes the row of c into tx and notes it on c. ErrDuplicate: the row is there and is not ours; let tx go and return that
// error. What Commit answers is not noted: the guard looks for the row after the handler has returned. Other errors are those of
// Claim.Recordable.
func (l *Log) Record(tx *Tx, c *dedupe.Claim) error {
	if err := c.Recordable(l); err != nil {
		return err
	}
	req := c.RowToRecord()
	view, unlock := l.lock()
	_, err := view.try([]dedupe.CompleteRequest{req})
	unlock()
	if errors.Is(err, dedupe.ErrDuplicate) {
		c.Note(dedupe.RowDuplicate)
	}
	if err != nil {
		return err
	}
	tx.rows = append(tx.rows, req)
	c.Note(dedupe.RowWritten)
	return nil
}

// try writes the rows on trial and gives back what the book would hold then.
func (b at) try(reqs []dedupe.CompleteRequest) (map[dedupe.Key]row, error) {
	trial := at{&book{isLog: true, incarnation: b.incarnation, rows: map[dedupe.Key]row{}}, b.now}
	for _, req := range reqs {
		if r, found := b.rows[req.Key]; found {
			trial.rows[req.Key] = r
		}
	}
	for _, req := range reqs {
		if trial.rows[req.Key].State == dedupe.StateDone { // its own too: that transaction has committed, and this one is another
			return nil, opError("record", req.Key, dedupe.ErrDuplicate)
		}
		switch err := trial.complete(req).Err; {
		case errors.Is(err, dedupe.ErrStale):
			return nil, opError("record", req.Key, dedupe.ErrDuplicate)
		case err != nil:
			return nil, opError("record", req.Key, err)
		}
	}
	return trial.rows, nil
}

// Commit makes everything take effect, or nothing: ErrDuplicate if the row of a message is another's by now, ErrUnavailable if another
// transaction changed what this one read, another error if tx has ended.
func (tx *Tx) Commit() error {
	if tx.closed {
		return errEnded
	}
	tx.closed = true
	view, unlock := tx.log.lock()
	defer unlock()
	rows, err := view.try(tx.rows)
	if err != nil {
		return err
	}
	for name, commit := range tx.read {
		if tx.log.values[name].commit != commit {
			return errConflict
		}
	}
	tx.log.commits++
	maps.Copy(tx.log.rows, rows)
	for name, v := range tx.set {
		tx.log.values[name] = value{v, tx.log.commits}
	}
	return nil
}

// Transactional makes a handler of fn, as the function of the same name in sqlstore does for a database: fn runs in a transaction in
// which the message's row is written already, and commit and rollback are ours. fn does not run for a message whose row is there, and
// runs again when another transaction was first, so it does nothing outside of tx.
func Transactional[M dedupe.Holder](l *Log, fn func(ctx context.Context, tx *Tx, m M) error) func(context.Context, M) error {
	return func(ctx context.Context, m M) error {
		return l.inTx(ctx, m.Claim(), func(tx *Tx) error { return fn(ctx, tx, m) })
	}
}

// InTx is Transactional where the handler is far away: the claim comes from ctx. ErrNoClaim when there is none.
func (l *Log) InTx(ctx context.Context, fn func(tx *Tx) error) error {
	c, _ := dedupe.ClaimFrom(ctx)
	return l.inTx(ctx, c, fn)
}

func (l *Log) inTx(ctx context.Context, c *dedupe.Claim, fn func(tx *Tx) error) error {
	for {
		tx := l.Begin()
		if err := l.Record(tx, c); err != nil {
			return err
		}
		c.Note(dedupe.NotRecorded) // until the commit
		if err := ended(ctx); err != nil {
			return opError("begin", c.Key(), err)
		}
		if err := fn(tx); err != nil {
			return err
		}
		tx.rows[0] = c.RowToRecord() // with the result that fn may have set
		switch err := tx.Commit(); {
		case err == nil:
			c.Note(dedupe.RowCommitted)
			return nil
		case errors.Is(err, dedupe.ErrDuplicate):
			c.Note(dedupe.RowDuplicate)
			return err
		case !errors.Is(err, errConflict):
			return err
		}
	}
}
