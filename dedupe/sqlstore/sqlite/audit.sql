-- Keeps who did something by hand to a row that is gone, and why, with its scope.
-- :scope  bytes
-- :reason  who and why
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
UPDATE {{meta}} SET reason = :reason, updated_at = {{now}}
WHERE scope = :scope
