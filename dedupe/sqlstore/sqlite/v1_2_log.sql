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
-- WITHOUT ROWID: the key is the table, and NULL is no key.
CREATE TABLE IF NOT EXISTS {{log}} (
    scope        BLOB    NOT NULL,
    namespace    BLOB    NOT NULL,
    msg_id       BLOB    NOT NULL,
    state        INTEGER NOT NULL,
    owner        BLOB    NOT NULL,
    fence        INTEGER NOT NULL DEFAULT 0,
    lease_until  INTEGER NOT NULL DEFAULT 0,
    failures     INTEGER NOT NULL DEFAULT 0,
    deaths       INTEGER NOT NULL DEFAULT 0,
    alone_deaths INTEGER NOT NULL DEFAULT 0,
    alone        INTEGER NOT NULL DEFAULT 0,
    generation   INTEGER NOT NULL DEFAULT 0,
    incarnation  TEXT    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    result       BLOB,
    reason       TEXT    NOT NULL,
    original     BLOB    NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, namespace, msg_id)
) WITHOUT ROWID
