-- Deletes rows whose retention is over, by the index (scope, state, expires_at).
-- :scope  bytes
-- :limit  rows
-- Counts what it deleted; fewer than :limit means that nothing is left.
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the rows are locked when they are chosen, once (an array, not a join); rows that somebody works on are
-- passed over.
DELETE FROM {{log}}
WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {{log}}
    WHERE scope = :scope AND state = 4 AND expires_at <= {{now}}
    LIMIT CAST(:limit AS bigint)
    FOR UPDATE SKIP LOCKED
))
