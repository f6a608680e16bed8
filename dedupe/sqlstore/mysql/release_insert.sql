-- Writes a free row, with its failure counted, for a key that the log does not know (transactional mode, where
-- no claim is in the log).
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :fingerprint, :original  as in record_insert.sql
-- :failed  1 or 0
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the primary key.
-- Counts 1 for a new row and 2 for one that is there, with clientFoundRows too: that is what the touch of
-- updated_at by 1 ms is for; a caller who meets 2 rolls back.
-- Not INSERT IGNORE, which also swallows other errors, and not a plain INSERT, where two waiters deadlock when
-- the first inserter rolls back.
INSERT INTO {{log}} (
    scope, namespace, msg_id, state, owner, incarnation, fingerprint, original, reason, failures,
    created_at, updated_at
) VALUES (
    :scope, :namespace, :msg_id, 1, :owner, {{incarnation}}, :fingerprint, :original, '',
    :failed, {{now}}, {{now}}
)
ON DUPLICATE KEY UPDATE updated_at = updated_at + 1
