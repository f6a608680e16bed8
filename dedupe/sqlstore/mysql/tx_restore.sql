-- Puts back the session's limits that tx_limits.sql changed. If it fails, the connection is not used again.
SET SESSION innodb_lock_wait_timeout = @idemq_lock, SESSION wait_timeout = @idemq_wait
