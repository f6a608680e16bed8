-- Makes a dead key free: next generation, counts 0, fingerprint cleared.
-- :scope, :namespace, :msg_id  the key, bytes
-- :fingerprint  20 zero bytes
-- :reason  who and why
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: dead is tested by the statement that writes.
-- Returns the row as it is after the write (columns.sql); no row: not written.
UPDATE {{log}} SET
    failures = 0,
    deaths = 0,
    alone_deaths = 0,
    generation = generation + 1,
    fingerprint = :fingerprint,
    reason = :reason,
    state = 1,
    updated_at = {{now}}
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id AND state = 3
{{returning}}
