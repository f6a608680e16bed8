-- Puts back the session's limits that tx_limits.sql changed. If it fails, the connection is not used again.
-- Empty: there are none.

