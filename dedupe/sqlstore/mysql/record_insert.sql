-- Writes done for a key that the log does not know: the row of a message in its own transaction, or on its own.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :fingerprint  20 bytes
-- :original  the id before hashing, or empty
-- :result  bytes for duplicates, or NULL
-- :retention  milliseconds until the row may be purged
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the primary key. Another transaction's uncommitted row is waited for: it commits and this inserts
-- nothing, or it rolls back and this inserts. Nothing inserted is not "done": record_update.sql asks what the
-- row is.
-- Counts 1 for a new row and 2 for one that is there, with clientFoundRows too: that is what the touch of
-- updated_at by 1 ms is for; a caller who meets 2 rolls back.
-- Not INSERT IGNORE, which also swallows other errors, and not a plain INSERT, where two waiters deadlock when
-- the first inserter rolls back.
INSERT INTO {{log}} (
    scope, namespace, msg_id, state, owner, incarnation, fingerprint, original, reason, result, expires_at,
    created_at, updated_at
) VALUES (
    :scope, :namespace, :msg_id, 4, :owner, {{incarnation}}, :fingerprint, :original, '',
    :result, {{now}} + :retention, {{now}}, {{now}}
)
ON DUPLICATE KEY UPDATE updated_at = updated_at + 1
