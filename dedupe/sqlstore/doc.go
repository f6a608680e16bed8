// Package sqlstore is the log of package dedupe in a database: PostgreSQL, MySQL and MariaDB, or SQLite.
//
// The log is one table, idempotent_log, with one row for each message and scope, beside idempotent_log_meta, which says what the
// log knows about itself and about each scope. Migrate makes them, DDL is the same as text, and Check refuses tables and settings on
// which the promises would not hold.
//
// # In the business transaction
//
// In Transactional mode the row is written in the transaction of the effect, so that they commit together or not at all. Transactional
// gives a handler a transaction in which the row is written already; InTx does so far from the handler; Record writes the row in
// any transaction of the same database. A duplicate meets the row and changes nothing.
//
// # What the database promises, and what is made of it
//
// The primary key (scope, namespace, msg_id) is bytes, so that no collation takes two ids for one. One of many inserters of a key wins;
// all other moves are updates that test, in the statement that writes, the state, the owner, the incarnation and the end of the
// lease by the database's clock. Nothing is read first and written later.
//
// An error of a statement is told by its code, never by its text: surely not done (dedupe.ErrUnavailable), perhaps done
// (dedupe.ErrOutcomeUnknown: the connection was cut or the context ended while the statement was under way, and the server may still
// execute it), or refused for good. Only what surely was not done is repeated inside. Whoever is told that the outcome is unknown repeats
// the statement with the same owner and meets itself.
//
// # SQL
//
// The statements are in postgres/, mysql/ and sqlite/, one a file, under the same names. Each begins with what it does, its
// parameters, what it returns, and why it is atomic. {{log}}, {{meta}}, {{table}} and {{index}} are the names that Config gives; {{now}},
// {{columns}}, {{identity}} and {{incarnation}} are the expressions in the files of those names; {{returning}} is RETURNING with
// the columns, where the row is wanted. Columns are written without Config.ColumnPrefix, which is put before their names.
package sqlstore
