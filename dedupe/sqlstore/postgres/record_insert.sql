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
-- Returns the new row (columns.sql); no row: the key is there already, whatever its state.
INSERT INTO {{log}} (
    scope, namespace, msg_id, state, owner, incarnation, fingerprint, original, reason, result, expires_at,
    created_at, updated_at
) VALUES (
    :scope, :namespace, :msg_id, 4, :owner, {{incarnation}}, :fingerprint, :original, '',
    CAST(:result AS bytea), {{now}} + CAST(:retention AS bigint), {{now}}, {{now}}
)
ON CONFLICT (scope, namespace, msg_id) DO NOTHING
{{returning}}
