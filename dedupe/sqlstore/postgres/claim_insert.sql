-- Claims a key that the log does not know.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :lease  milliseconds
-- :alone  1 or 0: nothing else runs in the process
-- :fingerprint  20 bytes
-- :original  the id before hashing, or empty
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the primary key lets one of many inserters in; the others wait for it and then insert nothing, or
-- insert if it rolled back.
-- Returns the new row (columns.sql); no row: the key is there already, whatever its state.
INSERT INTO {{log}} (
    scope, namespace, msg_id, state, owner, incarnation, fingerprint, original, reason, fence, lease_until,
    alone, created_at, updated_at
) VALUES (
    :scope, :namespace, :msg_id, 2, :owner, {{incarnation}}, :fingerprint, :original, '', {{now}},
    {{now}} + CAST(:lease AS bigint), CAST(:alone AS smallint), {{now}}, {{now}}
)
ON CONFLICT (scope, namespace, msg_id) DO NOTHING
{{returning}}
