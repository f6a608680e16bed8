-- Expression, appended to the log's random name: which cluster this is (a dump restored elsewhere is another)
-- and which timeline it writes (a promoted standby is on another). A standby has none of its own.
'.' || (SELECT CAST(system_identifier AS text) FROM pg_control_system())
    || '.' || CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END
