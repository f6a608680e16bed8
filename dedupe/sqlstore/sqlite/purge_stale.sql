-- Deletes free rows and expired claims that nobody has touched for :stale_after, by the index (scope, state,
-- expires_at): such rows are few beside done ones. Never a live claim, never a dead key.
-- :scope  bytes
-- :stale_after  milliseconds
-- :limit  rows
-- Counts what it deleted; fewer than :limit means that nothing is left.
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: one statement.
DELETE FROM {{log}}
WHERE (scope, namespace, msg_id) IN (
    SELECT scope, namespace, msg_id FROM {{log}}
    WHERE scope = :scope AND updated_at <= {{now}} - :stale_after
      AND (state = 1 OR (state = 2 AND lease_until <= {{now}}))
    LIMIT :limit
)
