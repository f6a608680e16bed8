-- Writes a free row, with its failure counted, for a key that the log does not know (transactional mode, where
-- no claim is in the log).
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :fingerprint, :original  as in record_insert.sql
-- :failed  1 or 0
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the primary key.
-- Returns the new row (columns.sql); no row: the key is there already, whatever its state.
INSERT INTO {{log}} (
    scope, namespace, msg_id, state, owner, incarnation, fingerprint, original, reason, failures,
    created_at, updated_at
) VALUES (
    :scope, :namespace, :msg_id, 1, :owner, {{incarnation}}, :fingerprint, :original, '',
    :failed, {{now}}, {{now}}
)
ON CONFLICT (scope, namespace, msg_id) DO NOTHING
{{returning}}
