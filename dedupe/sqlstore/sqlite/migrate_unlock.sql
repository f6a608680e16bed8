-- Ends what migrate_lock.sql took.
-- :name  as there
-- Returns nothing. Empty: it ended with the transaction.

