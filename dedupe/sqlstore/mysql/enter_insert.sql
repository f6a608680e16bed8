-- Writes the scope's row if there is none.
-- :scope  bytes
-- :mode  transactional, logged, redis-only
-- :retention  milliseconds
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the primary key.
INSERT INTO {{meta}} (scope, mode, retention, created_at, updated_at)
VALUES (:scope, :mode, :retention, {{now}}, {{now}})
ON DUPLICATE KEY UPDATE scope = scope
