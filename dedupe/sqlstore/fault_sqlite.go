package sqlstore

import (
	"errors"

	"modernc.org/sqlite"
)

// sqliteFault sorts by result code (https://www.sqlite.org/rescode.html). Busy is the whole database, not a row: another process
// writes for longer than busy_timeout, or a transaction that read before it wrote has to run again (BUSY_SNAPSHOT).
func sqliteFault(err error) fault {
	var lite *sqlite.Error
	if !errors.As(err, &lite) {
		return faultOther
	}
	const busySnapshot = 517
	if lite.Code() == busySnapshot {
		return faultConflict
	}
	switch lite.Code() & 0xff { // the primary result code
	case 5, 6, // busy, locked
		7, 8, 13, 14: // memory, read-only, disk full, cannot open
		return faultRefused
	case 9, 10: // interrupted, I/O error
		return faultCut
	}
	return faultData
}
