-- Expression, appended to the log's random name: nothing. A copied file looks like the original, so Restored is
-- the only sign of a restore.
''
