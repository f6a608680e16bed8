-- Writes a dead row for a key that the log does not know. The dead letter is stored before.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :fingerprint, :original  as in record_insert.sql
-- :reason  why, for people
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the primary key.
-- Counts 1 for a new row and 2 for one that is there, with clientFoundRows too: that is what the touch of
-- updated_at by 1 ms is for; a caller who meets 2 rolls back.
-- Not INSERT IGNORE, which also swallows other errors, and not a plain INSERT, where two waiters deadlock when
-- the first inserter rolls back.
INSERT INTO {{log}} (
    scope, namespace, msg_id, state, owner, incarnation, fingerprint, original, reason, created_at,
    updated_at
) VALUES (
    :scope, :namespace, :msg_id, 3, :owner, {{incarnation}}, :fingerprint, :original, :reason, {{now}},
    {{now}}
)
ON DUPLICATE KEY UPDATE updated_at = updated_at + 1
