package sqlstore

// dialect is what a kind of database has of its own. The statements, which are most of it, are in the folder of its name.
type dialect struct {
	name Dialect
	// numbered placeholders ($1, one for each name) or a question mark for each use.
	numbered bool
	quote    string
	// returning: a write returns the row; otherwise the row is read after it.
	returning bool
	// foundRows: the count of an update may be of the rows found, if the connection is set so. Probed.
	foundRows bool
	// indexInSchema: the name of an index, not of its table, carries the schema.
	indexInSchema bool
	// ownHeartbeat: the heartbeat has a connection of its own. SQLite has no server to be cut off from, and one writer.
	ownHeartbeat bool
	// commitHides: COMMIT succeeds although the server rolled the transaction back in the middle, after an error that a handler swallowed.
	commitHides bool
	// endHides: COMMIT succeeds where no transaction is open, as after a ROLLBACK that a handler sent as a statement.
	endHides bool
	// fault sorts an error of the driver by its code; faultOther for what has none.
	fault func(error) fault
}

var dialects = map[Dialect]*dialect{
	Postgres: {name: Postgres, numbered: true, quote: `"`, returning: true, ownHeartbeat: true, endHides: true, fault: postgresFault},
	MySQL:    {name: MySQL, quote: "`", foundRows: true, commitHides: true, ownHeartbeat: true, fault: mysqlFault},
	SQLite:   {name: SQLite, quote: `"`, returning: true, indexInSchema: true, fault: sqliteFault},
}

var dialectOfDriver = map[string]Dialect{
	"pgx": Postgres, "pgx/v5": Postgres, "postgres": Postgres,
	"mysql": MySQL, "mariadb": MySQL,
	"sqlite": SQLite, "sqlite3": SQLite,
}

// readsAfter: a row that was written is read by a second statement. Both are in one transaction, or the second might see what the next
// owner has made of the row.
func (d *dialect) readsAfter() bool { return !d.returning }
