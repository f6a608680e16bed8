package sqlstore

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresFault sorts by SQLSTATE (https://www.postgresql.org/docs/current/errcodes-appendix.html). Any driver will do whose errors have an
// SQLState method.
func postgresFault(err error) fault {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		switch {
		case errors.Is(err, pgx.ErrTxCommitRollback): // COMMIT of a transaction that had failed already
			return faultData
		case pgconn.SafeToRetry(err):
			return faultNotSent
		}
		return faultOther
	}
	code := coded.SQLState()
	switch code {
	case "40001", "40P01": // serialization failure, deadlock
		return faultConflict
	case "55P03": // lock_timeout
		return faultLocked
	case "25006", // read-only
		"57014",          // canceled: statement_timeout, or by hand
		"57P03",          // starting, stopping or recovering
		"25P03", "25P04": // idle_in_transaction_session_timeout, transaction_timeout: the transaction was open, so nothing is committed
		return faultRefused
	case "40003", // statement completion unknown
		"57P01", "57P02", "57P05": // terminated, crashed, idle for too long: after a commit perhaps
		return faultCut
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.SeverityUnlocalized != "ERROR" && pg.SeverityUnlocalized != "" && !refusesSession(code) {
		return faultCut // FATAL and PANIC end the session wherever it is
	}
	switch code[:2] {
	case "08": // connection, also from a pooler in between
		return faultCut
	case "53", "58": // resources, system
		return faultRefused
	}
	return faultData
}

// refusesSession: FATAL because there is no session yet: wrong password, unknown database, no permission, too many connections.
func refusesSession(code string) bool {
	return strings.HasPrefix(code, "28") || strings.HasPrefix(code, "42") || code == "3D000" || code == "53300"
}
