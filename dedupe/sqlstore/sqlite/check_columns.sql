-- Describes the columns of a table.
-- :schema, :table  names; an empty schema is the connection's
-- Returns one row a column: name, declared type for people, exact (1: bytes, compared as bytes), size (bytes it
-- holds; 0: no limit), key_part (1, 2, 3 in the primary key; 0: not in it, or only a prefix of it).
SELECT name, type AS declared, CASE WHEN upper(type) = 'BLOB' AND "notnull" = 1 THEN 1 ELSE 0 END AS exact, 0 AS size, pk AS key_part
FROM pragma_table_info(:table, CASE WHEN :schema = '' THEN 'main' ELSE :schema END)
