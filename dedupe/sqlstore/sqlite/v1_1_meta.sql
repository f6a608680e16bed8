-- Schema version 1: the log about itself (the row with the empty scope) and about each scope.
-- incarnation, schema_version, identity  of the log's own row
-- mode, retention (ms)  of a scope's row
-- reason  who last did something by hand, and why
-- created_at, updated_at  milliseconds since 1970, the database's clock
CREATE TABLE IF NOT EXISTS {{meta}} (
    scope          BLOB    NOT NULL,
    incarnation    TEXT    NOT NULL DEFAULT '',
    schema_version INTEGER NOT NULL DEFAULT 0,
    identity       INTEGER NOT NULL DEFAULT 0,
    mode           TEXT    NOT NULL DEFAULT '',
    retention      INTEGER NOT NULL DEFAULT 0,
    reason         TEXT    NOT NULL DEFAULT '',
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (scope)
) WITHOUT ROWID
