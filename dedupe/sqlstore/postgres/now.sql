-- Expression: the database's clock at the start of the statement, milliseconds since 1970, exact.
-- statement_timestamp and not now(): a transaction may be old.
CAST(floor(extract(epoch FROM statement_timestamp()) * 1000) AS bigint)
