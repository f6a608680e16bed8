-- Expressions: what is read of a row. lease_left, created_at, updated_at and expires_at in milliseconds; present
-- is the log's incarnation now, seen by the same statement.
state, owner, fence, lease_until - {{now}} AS lease_left, failures, deaths, alone_deaths, alone, generation,
    incarnation, fingerprint, result, reason, original, created_at, updated_at, expires_at, {{incarnation}} AS present
