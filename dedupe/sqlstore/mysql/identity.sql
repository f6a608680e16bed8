-- Expression, appended to the log's random name where the server has one: MySQL's server_uuid. MariaDB has none,
-- so the random name stands alone (meta_insert.sql decides).
'.', @@server_uuid
