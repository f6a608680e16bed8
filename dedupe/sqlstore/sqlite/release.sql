-- Frees a held claim, keeping its counts and its last owner.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner, :incarnation  of the claim: the row's must be these, and the log's must still be that incarnation, so
--     that a claim made before a restore writes nothing after it
-- :failed  1: one failure is counted; 0: a hand-back
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: a compare-and-swap. The lease's end is not asked: an expired claim that nobody took is still held.
-- Returns the row as it is after the write (columns.sql); no row: not written.
UPDATE {{log}} SET
    failures = failures + :failed,
    incarnation = {{incarnation}},
    reason = '',
    alone = 0,
    state = 1,
    updated_at = {{now}}
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id
  AND state = 2 AND owner = :owner AND incarnation = :incarnation AND {{incarnation}} = :incarnation
{{returning}}
