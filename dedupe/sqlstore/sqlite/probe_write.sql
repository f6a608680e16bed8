-- Changes nothing, by a write: is the database read-only, may we write, and what do counts mean? It has a row of
-- its own, "#", because in MySQL handlers' transactions may hold a shared lock on the log's row.
-- Counts 1, and in MySQL 0 unless clientFoundRows is on.
UPDATE {{meta}} SET updated_at = updated_at
WHERE scope = x'23'
