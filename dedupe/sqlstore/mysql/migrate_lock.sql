-- Lets one of many processes migrate at a time.
-- :name  of the log's table, for the lock's name
-- Returns one row: 1, the lock is ours. 0: another held it for 60 s.
-- Ends with the session; migrate_unlock.sql ends it earlier.
SELECT GET_LOCK(CONCAT('idemq ', MD5(CONCAT(DATABASE(), ' ', :name))), 60)
