package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idemq/idemq/dedupe"
)

// fault is what an error of the database says about the statement.
type fault uint8

const (
	// faultOther: not an error that a database or its connection makes.
	faultOther fault = iota
	// faultData: answered by the database, not done, and repeating cannot mend it.
	faultData
	// faultNotSent: never left this process: safe to repeat at once.
	faultNotSent
	// faultRefused: answered, surely not done, and perhaps done later: read-only, full, starting, too many connections.
	faultRefused
	// faultConflict: rolled back because of others (deadlock, serialization): run it again.
	faultConflict
	// faultLocked: another transaction holds the row, and the wait was over; not done.
	faultLocked
	// faultCut: the connection or the context ended while it was under way: perhaps done.
	faultCut
)

// faultOf sorts err: the code first, then the connection.
func (d *dialect) faultOf(err error) fault {
	if errors.Is(err, driver.ErrBadConn) { // documented to mean: not sent
		return faultNotSent
	}
	if f := d.fault(err); f != faultOther {
		return f
	}
	var netErr net.Error
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &netErr):
		return faultCut
	}
	return faultOther
}

// failure is an error of the log's own statements: what the caller may conclude, and the cause.
type failure struct {
	fault    fault
	conclude error // dedupe.ErrUnavailable, dedupe.ErrOutcomeUnknown, or nil: repeating cannot mend it
	cause    error
}

func (f *failure) Error() string {
	if f.conclude == nil {
		return f.cause.Error()
	}
	return fmt.Sprintf("%v: %v", f.conclude, f.cause)
}

func (f *failure) Unwrap() []error {
	if f.conclude == nil {
		return []error{f.cause}
	}
	return []error{f.conclude, f.cause}
}

// failed says what is known after err of a statement. alone: it commits by itself, so that a cut leaves it unknown; otherwise its
// transaction was not committed.
func (d *dialect) failed(err error, alone bool) *failure {
	f := &failure{fault: d.faultOf(err), cause: err}
	switch f.fault {
	case faultData:
	case faultNotSent, faultRefused, faultConflict, faultLocked:
		f.conclude = dedupe.ErrUnavailable
	default:
		f.conclude = dedupe.ErrUnavailable
		if alone {
			f.conclude = dedupe.ErrOutcomeUnknown
		}
	}
	return f
}

// notReached is the failure of getting a connection. What the server refuses for good (a wrong password, an unknown database) is
// no outage: waiting cannot mend it.
func (d *dialect) notReached(err error) *failure {
	f := &failure{fault: d.faultOf(err), cause: withRemedy(withoutUser(err))}
	if f.fault != faultData {
		f.fault, f.conclude = faultRefused, dedupe.ErrUnavailable
	}
	return f
}

// withRemedy says what to do about the two commonest mistakes in a database URL.
func withRemedy(err error) error {
	var (
		code string
		pg   interface{ SQLState() string }
		my   *mysql.MySQLError
	)
	switch {
	case errors.As(err, &pg):
		code = pg.SQLState()
	case errors.As(err, &my):
		code = strconv.Itoa(int(my.Number))
	}
	switch code {
	case "28P01", "28000", "1045":
		return fmt.Errorf("%w; correct user and password in the database URL", err)
	case "3D000", "1049":
		return fmt.Errorf("%w; create the database first", err)
	case "1044": // so MySQL answers to a user who may not know whether it is there
		return fmt.Errorf("%w; create the database first, or let this user use it", err)
	}
	return err
}

// withoutUser drops what pgx puts before the address and the cause: the user and the database of the connection string.
func withoutUser(err error) error {
	var c *pgconn.ConnectError
	if errors.As(err, &c) {
		return c.Unwrap()
	}
	return err
}

// isFault reports whether err is a failure by f.
func isFault(err error, f fault) bool {
	var fail *failure
	return errors.As(err, &fail) && fail.fault == f
}

// keyError is the one shape of our errors about a key.
func keyError(op string, k dedupe.Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlstore: %s %v: %w", op, k, err)
}

// opError is the one shape of our other errors; thing may be empty.
func opError(op, thing string, err error) error {
	switch {
	case err == nil:
		return nil
	case thing == "":
		return fmt.Errorf("sqlstore: %s: %w", op, err)
	}
	return fmt.Errorf("sqlstore: %s %q: %w", op, thing, err)
}

// noRow says that a query had no row, which is an answer.
func noRow(err error) bool { return errors.Is(err, sql.ErrNoRows) }
