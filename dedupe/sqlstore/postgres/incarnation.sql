-- Expression: the log's present incarnation, in the statement that uses it. NULL, which no column takes, before
-- Migrate.
(SELECT m.incarnation || {{identity}} FROM {{meta}} AS m WHERE m.scope = '')
