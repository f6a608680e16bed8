-- Turns a row that is there into done, where that is allowed: free, this owner's claim, an expired claim, dead
-- in another incarnation or for a redriven copy (next generation, counts 0).
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :fingerprint  20 bytes
-- :original  the id before hashing, or empty
-- :result  bytes for duplicates, or NULL
-- :retention  milliseconds until the row may be purged
-- :redriven  1: a marked copy of a dead letter
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the state is tested by the statement that writes; done, a live claim of another and a dead letter are
-- never written over.
-- Returns the row as it is after the write (columns.sql); no row: not written.
UPDATE {{log}} SET
    failures = CASE WHEN state = 3 THEN 0 ELSE failures END,
    deaths = CASE WHEN state = 3 THEN 0 ELSE deaths END,
    alone_deaths = CASE WHEN state = 3 THEN 0 ELSE alone_deaths END,
    generation = CASE WHEN state = 3 THEN generation + 1 ELSE generation END,
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
  AND (state = 1
    OR (state = 2 AND (owner = :owner OR lease_until <= {{now}}))
    OR (state = 3 AND (:redriven = 1 OR incarnation <> {{incarnation}})))
{{returning}}
