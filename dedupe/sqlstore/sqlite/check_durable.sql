-- Lists the settings by which a commit is answered before it is on the disk, as they are on this connection.
-- With a write-ahead log NORMAL (1) is too little: it is not synced at a commit. Without one it is enough.
-- Returns one row for each: name, setting, needed.
SELECT 'synchronous' AS name, CASE synchronous WHEN 0 THEN 'OFF' ELSE 'NORMAL' END AS setting, 'FULL' AS needed
FROM pragma_synchronous, pragma_journal_mode
WHERE synchronous = 0 OR (synchronous = 1 AND journal_mode = 'wal')
