-- Reads the log's present incarnation: the heartbeat.
-- Returns one row.
SELECT {{incarnation}} AS present
FROM {{meta}}
WHERE scope = ''
