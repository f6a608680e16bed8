-- Notes that the tables are at a schema version.
-- :version  number
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: one row; never back to an older version.
UPDATE {{meta}} SET schema_version = :version, updated_at = {{now}}
WHERE scope = x'' AND schema_version < :version
