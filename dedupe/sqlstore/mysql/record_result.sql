-- Puts the result that the handler has set into the row that its transaction wrote.
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner  of this attempt, bytes
-- :result  bytes
-- Counts 1; 0: the row is not ours, roll back.
-- Atomic: one row, compared with its owner.
UPDATE {{log}} SET result = :result
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id
  AND state = 4 AND owner = :owner
