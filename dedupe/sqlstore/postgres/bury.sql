-- Turns a held claim into dead. The dead letter is stored before.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner, :incarnation  of the claim: the row's must be these, and the log's must still be that incarnation, so
--     that a claim made before a restore writes nothing after it
-- :reason  why, for people
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: a compare-and-swap. The lease's end is not asked: an expired claim that nobody took is still held.
-- Returns the row as it is after the write (columns.sql); no row: not written.
UPDATE {{log}} SET
    incarnation = {{incarnation}},
    reason = :reason,
    alone = 0,
    state = 3,
    updated_at = {{now}}
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id
  AND state = 2 AND owner = :owner AND incarnation = :incarnation AND {{incarnation}} = :incarnation
{{returning}}
