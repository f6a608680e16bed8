-- Ends what migrate_lock.sql took. Empty: it ended with the transaction.

