-- Gives the log a new random name.
-- :incarnation  the name
-- :reason  who and why
-- Counts 1.
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: one row.
UPDATE {{meta}} SET incarnation = :incarnation, reason = :reason, updated_at = {{now}}
WHERE scope = ''
