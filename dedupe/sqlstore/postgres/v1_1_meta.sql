-- Schema version 1: the log about itself (the row with the empty scope) and about each scope.
-- incarnation, schema_version, identity  of the log's own row
-- mode, retention (ms)  of a scope's row
-- reason  who last did something by hand, and why
-- created_at, updated_at  milliseconds since 1970, the database's clock
CREATE TABLE IF NOT EXISTS {{meta}} (
    scope          bytea    NOT NULL,
    incarnation    text     NOT NULL DEFAULT '',
    schema_version integer  NOT NULL DEFAULT 0,
    identity       smallint NOT NULL DEFAULT 0,
    mode           text     NOT NULL DEFAULT '',
    retention      bigint   NOT NULL DEFAULT 0,
    reason         text     NOT NULL DEFAULT '',
    created_at     bigint   NOT NULL,
    updated_at     bigint   NOT NULL,
    PRIMARY KEY (scope)
)
