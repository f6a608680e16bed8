-- Expression: the database's clock at the start of the statement, milliseconds since 1970, exact and independent
-- of the session's time zone (UNIX_TIMESTAMP of a local time is ambiguous for an hour each autumn).
TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000
