-- Lists the settings by which a commit is answered before it is on the disk. MariaDB's 3 is as good as 1.
-- Returns one row for each: name, setting, needed.
SELECT 'innodb_flush_log_at_trx_commit' AS name, CAST(@@GLOBAL.innodb_flush_log_at_trx_commit AS CHAR) AS setting, '1' AS needed
FROM DUAL
WHERE @@GLOBAL.innodb_flush_log_at_trx_commit IN (0, 2)
