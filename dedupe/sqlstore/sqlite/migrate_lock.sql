-- Lets one of many processes migrate at a time.
-- :name  of the log's table, for the lock's name
-- Returns one row: 1, the lock is ours.
-- The transaction of Migrate holds the only writer's lock from its first statement (_txlock=immediate) or its
-- first write.
SELECT 1 WHERE :name <> ''
