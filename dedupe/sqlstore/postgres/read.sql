-- Reads one row, and the log's present incarnation in the same statement.
-- :scope, :namespace, :msg_id  the key, bytes
-- Returns one row (columns.sql), or none.
-- Writes nothing. Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
SELECT {{columns}}
FROM {{log}}
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id
