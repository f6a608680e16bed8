-- Bounds the transaction of a handler, so that an owner who is cut off does not block the duplicates of its
-- message for hours.
-- :lock_ms  longest wait for a lock
-- :statement_ms  longest statement
-- :idle_ms  longest silence of the client inside the transaction
-- Empty: there is no server, a process that ends leaves no lock, and the wait for the one writer is busy_timeout
-- of the connection.

