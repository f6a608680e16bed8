-- Describes the columns of a table.
-- :schema, :table  names; an empty schema is the connection's
-- Returns one row a column: name, declared type for people, exact (1: bytes, compared as bytes), size (bytes it
-- holds; 0: no limit), key_part (1, 2, 3 in the primary key; 0: not in it, or only a prefix of it).
SELECT c.COLUMN_NAME AS name, CONCAT(c.COLUMN_TYPE, COALESCE(CONCAT(' collate ', c.COLLATION_NAME), '')) AS declared,
    CASE WHEN c.DATA_TYPE = 'varbinary' THEN 1 ELSE 0 END AS exact, COALESCE(c.CHARACTER_OCTET_LENGTH, 0) AS size,
    COALESCE(CASE WHEN s.SUB_PART IS NULL THEN s.SEQ_IN_INDEX ELSE 0 END, 0) AS key_part
FROM information_schema.COLUMNS c
LEFT JOIN information_schema.STATISTICS s ON s.TABLE_SCHEMA = c.TABLE_SCHEMA AND s.TABLE_NAME = c.TABLE_NAME
    AND s.COLUMN_NAME = c.COLUMN_NAME AND s.INDEX_NAME = 'PRIMARY'
WHERE c.TABLE_SCHEMA = CASE WHEN :schema = '' THEN DATABASE() ELSE :schema END AND c.TABLE_NAME = :table
