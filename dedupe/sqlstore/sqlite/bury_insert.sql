-- Writes a dead row for a key that the log does not know. The dead letter is stored before.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :fingerprint, :original  as in record_insert.sql
-- :reason  why, for people
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the primary key.
-- Returns the new row (columns.sql); no row: the key is there already, whatever its state.
INSERT INTO {{log}} (
    scope, namespace, msg_id, state, owner, incarnation, fingerprint, original, reason, created_at,
    updated_at
) VALUES (
    :scope, :namespace, :msg_id, 3, :owner, {{incarnation}}, :fingerprint, :original, :reason, {{now}},
    {{now}}
)
ON CONFLICT (scope, namespace, msg_id) DO NOTHING
{{returning}}
