package sqlstore

import (
	"errors"

	"github.com/go-sql-driver/mysql"
)

// mysqlFault sorts by error number, of MySQL and MariaDB.
func mysqlFault(err error) fault {
	if errors.Is(err, mysql.ErrInvalidConn) { // cut after it was sent
		return faultCut
	}
	var my *mysql.MySQLError
	if !errors.As(err, &my) {
		return faultOther
	}
	switch my.Number {
	case 1213, // deadlock
		1020: // MariaDB: the record has changed since the snapshot
		return faultConflict
	case 1205, // lock wait timeout: the statement only is rolled back
		3572: // NOWAIT
		return faultLocked
	case 1290, 1792, 1836, // read-only: option, transaction, mode
		1040, 1203, 1226, // too many connections: of the server, of the user, over a resource limit
		1129,             // host blocked after errors
		1317, 1969, 3024, // interrupted, max_statement_time, max_execution_time
		1021, 1037, 1038, 1041, 1114, // disk, memory or table full
		1637, // too many transactions
		1047: // a Galera node that is not ready
		return faultRefused
	case 1053, 1927, 1152, 1158, 1159, 1160, 1161, 1184, 4031, // shutdown, killed, network, disconnected
		1180: // error during COMMIT
		return faultCut
	}
	return faultData
}

// mysqlDenied: the table may be there, and we may not read it; MySQL hides the description of such a table.
func mysqlDenied(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && (my.Number == 1142 || my.Number == 1143)
}
