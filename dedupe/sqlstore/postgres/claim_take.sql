-- Takes a key that is there and may be taken: free, claimed by this owner already (the same fence, nothing
-- counted), claimed with an expired lease (a death), dead in another incarnation or for a redriven copy (next
-- generation, counts 0).
-- :scope, :namespace, :msg_id  the key, bytes
-- :owner, :lease (ms), :alone, :fingerprint, :original  as in claim_insert.sql
-- :was_owner  the owner that was read before: a takeover is told from a first claim by it
-- :redriven  1: a marked copy of a dead letter
-- Clock: the database's, at the start of the statement, in milliseconds since 1970 (now.sql).
-- Atomic: every condition, the lease's end included, is tested by the statement that writes. The read before it
-- only spares this write for the duplicates.
-- Returns the row as it is after the write (columns.sql); no row: not written.
UPDATE {{log}} SET
    fence = CASE WHEN state = 2 AND owner = :owner THEN fence ELSE greatest(fence + 1, {{now}}) END,
    deaths = CASE WHEN state = 3 THEN 0 WHEN state = 2 AND owner <> :owner THEN deaths + 1 ELSE deaths END,
    alone_deaths = CASE WHEN state = 3 THEN 0 WHEN state = 2 AND owner <> :owner THEN alone_deaths + alone ELSE alone_deaths END,
    failures = CASE WHEN state = 3 THEN 0 ELSE failures END,
    generation = CASE WHEN state = 3 THEN generation + 1 ELSE generation END,
    original = CASE WHEN length(CAST(:original AS bytea)) = 0 THEN original ELSE :original END,
    fingerprint = :fingerprint,
    incarnation = {{incarnation}},
    reason = '',
    alone = CAST(:alone AS smallint),
    owner = :owner,
    state = 2,
    lease_until = {{now}} + CAST(:lease AS bigint),
    updated_at = {{now}}
WHERE scope = :scope AND namespace = :namespace AND msg_id = :msg_id AND owner = :was_owner
  AND (state = 1
    OR (state = 2 AND (owner = :owner OR lease_until <= {{now}}))
    OR (state = 3 AND (CAST(:redriven AS integer) = 1 OR incarnation <> {{incarnation}})))
{{returning}}
