-- Schema version 1: the purge's index.
CREATE INDEX IF NOT EXISTS {{index}} ON {{log}} (scope, state, expires_at)
