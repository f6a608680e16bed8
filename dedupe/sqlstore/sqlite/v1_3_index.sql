-- Schema version 1: the purge's index.
CREATE INDEX IF NOT EXISTS {{index}} ON {{table}} (scope, state, expires_at)
