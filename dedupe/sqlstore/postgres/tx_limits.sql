-- Bounds the transaction of a handler, so that an owner who is cut off does not block the duplicates of its
-- message for hours.
-- :lock_ms  longest wait for a lock
-- :statement_ms  longest statement
-- :idle_ms  longest silence of the client inside the transaction
-- Ends with the transaction.
SELECT set_config('lock_timeout', CAST(CAST(:lock_ms AS bigint) AS text) || 'ms', true),
    set_config('statement_timeout', CAST(CAST(:statement_ms AS bigint) AS text) || 'ms', true),
    set_config('idle_in_transaction_session_timeout', CAST(CAST(:idle_ms AS bigint) AS text) || 'ms', true)
