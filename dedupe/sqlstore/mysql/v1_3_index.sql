-- Schema version 1: the purge's index. Empty: v1_2_log.sql has it, since MySQL has no CREATE INDEX IF NOT
-- EXISTS.

