-- Schema version 1: one row a message and scope.
-- scope, namespace, msg_id  the key: bytes, compared exactly, whatever a collation thinks of case, accents and
-- trailing spaces
-- state  1 free, 2 claimed, 3 dead, 4 done
-- owner  of the claim, or the last one
-- fence, lease_until, created_at, updated_at, expires_at  milliseconds since 1970, the database's clock;
-- expires_at of done rows only
-- failures, deaths, alone_deaths, generation  counts; alone: 1 if the claim runs alone in its process
-- incarnation  of the log, when the row was written
-- fingerprint  20 bytes; result  what the handler stored; original  an id that was too long for msg_id; reason
-- of a dead row, or who changed it by hand
-- The index serves the purge.
-- No surrogate key: it would only make a second index of the first.
CREATE TABLE IF NOT EXISTS {{log}} (
    scope        VARBINARY(63)   NOT NULL,
    namespace    VARBINARY(255)  NOT NULL,
    msg_id       VARBINARY(255)  NOT NULL,
    state        SMALLINT        NOT NULL,
    owner        VARBINARY(255)  NOT NULL,
    fence        BIGINT          NOT NULL DEFAULT 0,
    lease_until  BIGINT          NOT NULL DEFAULT 0,
    failures     INT             NOT NULL DEFAULT 0,
    deaths       INT             NOT NULL DEFAULT 0,
    alone_deaths INT             NOT NULL DEFAULT 0,
    alone        SMALLINT        NOT NULL DEFAULT 0,
    generation   INT             NOT NULL DEFAULT 0,
    incarnation  VARBINARY(160)  NOT NULL,
    fingerprint  VARBINARY(20)   NOT NULL,
    result       MEDIUMBLOB,
    reason       VARCHAR(1024)   NOT NULL,
    original     VARBINARY(1024) NOT NULL,
    created_at   BIGINT          NOT NULL,
    updated_at   BIGINT          NOT NULL,
    expires_at   BIGINT          NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, namespace, msg_id),
    KEY {{index}} (scope, state, expires_at)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4
