-- Lets one of many processes migrate at a time.
-- :name  of the log's table, for the lock's name
-- Returns one row: 1, the lock is ours.
-- Ends with the transaction.
SELECT 1 FROM pg_advisory_xact_lock(hashtextextended('idemq migrate ' || CAST(:name AS text), 0))
