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
CREATE TABLE IF NOT EXISTS {{log}} (
    scope        bytea    NOT NULL,
    namespace    bytea    NOT NULL,
    msg_id       bytea    NOT NULL,
    state        smallint NOT NULL,
    owner        bytea    NOT NULL,
    fence        bigint   NOT NULL DEFAULT 0,
    lease_until  bigint   NOT NULL DEFAULT 0,
    failures     integer  NOT NULL DEFAULT 0,
    deaths       integer  NOT NULL DEFAULT 0,
    alone_deaths integer  NOT NULL DEFAULT 0,
    alone        smallint NOT NULL DEFAULT 0,
    generation   integer  NOT NULL DEFAULT 0,
    incarnation  text     NOT NULL,
    fingerprint  bytea    NOT NULL,
    result       bytea,
    reason       text     NOT NULL,
    original     bytea    NOT NULL,
    created_at   bigint   NOT NULL,
    updated_at   bigint   NOT NULL,
    expires_at   bigint   NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, namespace, msg_id)
)
