-- Reads the scope's row.
-- :scope  bytes
-- Returns mode, retention (ms), and the log's present incarnation; no row: the scope is unknown.
SELECT mode, retention, {{incarnation}} AS present
FROM {{meta}}
WHERE scope = :scope
