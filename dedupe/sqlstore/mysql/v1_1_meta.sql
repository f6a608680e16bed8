-- Schema version 1: the log about itself (the row with the empty scope) and about each scope.
-- incarnation, schema_version, identity  of the log's own row
-- mode, retention (ms)  of a scope's row
-- reason  who last did something by hand, and why
-- created_at, updated_at  milliseconds since 1970, the database's clock
CREATE TABLE IF NOT EXISTS {{meta}} (
    scope          VARBINARY(63)  NOT NULL,
    incarnation    VARBINARY(160) NOT NULL DEFAULT '',
    schema_version INT            NOT NULL DEFAULT 0,
    identity       SMALLINT       NOT NULL DEFAULT 0,
    mode           VARCHAR(32)    NOT NULL DEFAULT '',
    retention      BIGINT         NOT NULL DEFAULT 0,
    reason         VARCHAR(1024)  NOT NULL DEFAULT '',
    created_at     BIGINT         NOT NULL,
    updated_at     BIGINT         NOT NULL,
    PRIMARY KEY (scope)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4
