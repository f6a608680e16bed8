-- Raises the scope's retention to a larger one.
-- :scope  bytes
-- :mode  as in enter_insert.sql
-- :retention  milliseconds
-- Counts 1 if raised.
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: one row, compared.
UPDATE {{meta}} SET retention = :retention, updated_at = {{now}}
WHERE scope = :scope AND mode = :mode AND retention < :retention
