-- Describes the columns of a table.
-- :schema, :table  names; an empty schema is the connection's
-- Returns one row a column: name, declared type for people, exact (1: bytes, compared as bytes), size (bytes it
-- holds; 0: no limit), key_part (1, 2, 3 in the primary key; 0: not in it, or only a prefix of it).
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS declared,
    CAST(a.atttypid = CAST('bytea' AS regtype) AS integer) AS exact, 0 AS size,
    COALESCE(array_position(string_to_array(CAST(i.indkey AS text), ' '), CAST(a.attnum AS text)), 0) AS key_part
FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE c.oid = to_regclass(CASE WHEN CAST(:schema AS text) = '' THEN '' ELSE quote_ident(:schema) || '.' END || quote_ident(CAST(:table AS text)))
  AND a.attnum > 0 AND NOT a.attisdropped
