-- Reads what a process must know before its first statement. It has no {{incarnation}} in it, which depends on
-- the answer.
-- Returns schema_version; identity: 1 if the server's identity is part of the incarnation.
SELECT schema_version, identity
FROM {{meta}}
WHERE scope = x''
