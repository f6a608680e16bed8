-- Deletes a key, unless a live claim holds it.
-- :scope, :namespace, :msg_id  the key, bytes
-- Counts 1 if deleted; 0: it is absent, or held.
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: one statement.
DELETE FROM {{log}}
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id
  AND NOT (state = 2 AND lease_until > {{now}})
