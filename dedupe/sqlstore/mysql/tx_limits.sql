-- Bounds the transaction of a handler, so that an owner who is cut off does not block the duplicates of its
-- message for hours.
-- :lock_ms  longest wait for a lock
-- :statement_ms  longest statement
-- :idle_ms  longest silence of the client inside the transaction
-- For the session, in whole seconds; tx_restore.sql puts back what was there. wait_timeout stands for the
-- silence inside a transaction: MySQL has no other. A limit for writing statements that both MySQL and MariaDB
-- know does not exist, so :statement_ms is left to the client.
SET @idemq_lock = @@SESSION.innodb_lock_wait_timeout, @idemq_wait = @@SESSION.wait_timeout,
    SESSION innodb_lock_wait_timeout = (:lock_ms + 999) DIV 1000, SESSION wait_timeout = (:idle_ms + 999) DIV 1000
