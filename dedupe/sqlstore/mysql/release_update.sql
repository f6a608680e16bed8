-- Counts a failure in a row that is there and is not done: once for each owner.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :fingerprint, :original  replace a dead row's
-- :failed  1 or 0
-- :redriven  1: a marked copy of a dead letter
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the state is tested by the statement that writes; done, a live claim of another and a dead letter are
-- never written over.
-- Counts 1 if written, 0 if not.
-- Assignments run from left to right, and each sees the ones before it: what depends on the old state, owner or
-- alone comes before them.
UPDATE {{log}} SET
    failures = CASE WHEN state = 3 THEN 0 ELSE failures END + :failed,
    deaths = CASE WHEN state = 3 THEN 0 ELSE deaths END,
    alone_deaths = CASE WHEN state = 3 THEN 0 ELSE alone_deaths END,
    generation = CASE WHEN state = 3 THEN generation + 1 ELSE generation END,
    fingerprint = CASE WHEN state = 3 THEN :fingerprint ELSE fingerprint END,
    original = CASE WHEN state = 3 AND length(:original) > 0 THEN :original ELSE original END,
    incarnation = {{incarnation}},
    reason = '',
    alone = 0,
    owner = :owner,
    state = 1,
    updated_at = {{now}}
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id
  AND ((state = 1 AND owner <> :owner)
    OR (state = 2 AND (owner = :owner OR lease_until <= {{now}}))
    OR (state = 3 AND (:redriven = 1 OR incarnation <> {{incarnation}})))
