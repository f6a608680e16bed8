-- Writes the log's own row (scope empty, a random name, the schema version) and the row "#" that probe_write.sql
-- touches. Does nothing if they are there.
-- identity says whether the server's identity (identity.sql) can be read and becomes part of the incarnation. It
-- is decided once, here, for all processes.
-- :version  number
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: the primary key.
INSERT INTO {{meta}} (scope, incarnation, schema_version, identity, created_at, updated_at)
VALUES ('', replace(CAST(gen_random_uuid() AS text), '-', ''), CAST(:version AS integer),
    CAST(has_function_privilege('pg_control_system()', 'execute') AND has_function_privilege('pg_walfile_name(pg_lsn)', 'execute') AS integer),
    {{now}}, {{now}}), ('#', '', 0, 0, {{now}}, {{now}})
ON CONFLICT (scope) DO NOTHING
