-- Turns a held claim into done.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner, :incarnation  of the claim: the row's must be these, and the log's must still be that incarnation, so
--     that a claim made before a restore writes nothing after it
-- :fingerprint  20 bytes
-- :original  the id before hashing, or empty
-- :result  bytes for duplicates, or NULL
-- :retention  milliseconds until the row may be purged
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: a compare-and-swap. The lease's end is not asked: an expired claim that nobody took is still held.
-- Counts 1 if written.
UPDATE {{log}} SET
    fingerprint = :fingerprint,
    original = CASE WHEN length(:original) = 0 THEN original ELSE :original END,
    result = :result,
    incarnation = {{incarnation}},
    reason = '',
    alone = 0,
    owner = :owner,
    state = 4,
    expires_at = {{now}} + :retention,
    updated_at = {{now}}
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id
  AND state = 2 AND owner = :owner AND incarnation = :incarnation AND {{incarnation}} = :incarnation
