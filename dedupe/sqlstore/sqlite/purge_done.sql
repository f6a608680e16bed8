-- Deletes rows whose retention is over, by the index (scope, state, expires_at).
-- :scope  bytes
-- :limit  rows
-- Counts what it deleted; fewer than :limit means that nothing is left.
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: one statement.
DELETE FROM {{log}}
WHERE (scope, namespace, msg_id) IN (
    SELECT scope, namespace, msg_id FROM {{log}}
    WHERE scope = :scope AND state = 4 AND expires_at <= {{now}}
    LIMIT :limit
)
