-- Turns a row that is there into dead where it is free, this owner's claim, an expired claim, or dead already.
-- The dead letter is stored before.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :reason  why, for people
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the state is tested by the statement that writes; done, a live claim of another and a dead letter are
-- never written over.
-- Counts 1 if written, 0 if not. An owner that is compared after its assignment would be the new one: WHERE runs
-- before SET.
UPDATE {{log}} SET
    incarnation = {{incarnation}},
    reason = :reason,
    alone = 0,
    updated_at = {{now}},
    owner = :owner,
    state = 3
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id
  AND (state = 1
    OR (state = 2 AND (owner = :owner OR lease_until <= {{now}}))
    OR (state = 3 AND owner <> :owner))
