-- Sets the scope's mode.
-- :scope  bytes
-- :mode  as in enter_insert.sql
-- :reason  who and why
-- Counts 1; 0: the scope is unknown (or, in MySQL, it has that mode and reason in the same millisecond).
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: one row.
UPDATE {{meta}} SET mode = :mode, reason = :reason, updated_at = {{now}}
WHERE scope = :scope
