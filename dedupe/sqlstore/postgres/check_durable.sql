-- Lists the settings by which a commit is answered before it is on the disk, as they are on this connection.
-- Returns one row for each: name, setting, needed.
SELECT name, setting, 'on' AS needed
FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit') AND setting = 'off'
ORDER BY name
