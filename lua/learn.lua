-- learn.lua: write what the log knows about a key. For a Redis that only answers earlier what the log knows already.
--
-- KEYS[1]   the key
-- ARGV[1]   state: free, claimed, dead or done
-- ARGV[2]   retention in milliseconds, at least 1
-- ARGV[3]   rest of the lease in milliseconds, of a claimed key: a duration, because the log has a clock of its own
-- ARGV[4]   fence
-- ARGV[5]   failures
-- ARGV[6]   deaths
-- ARGV[7]   alone deaths
-- ARGV[8]   1: the claim runs alone in its process
-- ARGV[9]   generation
-- ARGV[10]  owner
-- ARGV[11]  incarnation of the log that says so
-- ARGV[12]  fingerprint
-- ARGV[13]  original id, if the id is hashed
-- ARGV[14]  result, of a done key
-- ARGV[15]  reason, of a dead key
--
-- Replies
--   ok       the key is as the log said; of the same generation and incarnation, each count is the larger one, and so is any fence
--   kept     what is there is done in the same incarnation, or of a later generation and the news is not done: it stays
--   foreign  the value is not ours to read; nothing was written
--
-- Clock: this server's. Atomic: compared and written in one step, so that what came late never hides a done key.

local now = clock()
local r = load(KEYS[1], now)
if not r then
  return reply('foreign', now)
end

local counts = {failures = tonumber(ARGV[5]), deaths = tonumber(ARGV[6]), alone_deaths = tonumber(ARGV[7])}
local generation = tonumber(ARGV[9])
if r.state ~= StateAbsent and r.incarnation == ARGV[11] then
  if r.state == StateDone or (r.generation > generation and ARGV[1] ~= StateDone) then
    return reply('kept', now, r.value)
  end
  if r.generation == generation then
    for name, n in pairs(counts) do
      counts[name] = math.max(n, r[name])
    end
  end
end

for name, n in pairs(counts) do
  r[name] = n
end
r.state, r.generation, r.fence, r.alone = ARGV[1], generation, math.max(r.fence, tonumber(ARGV[4])), tonumber(ARGV[8])
r.owner, r.incarnation, r.fingerprint = ARGV[10], ARGV[11], ARGV[12]
r.original, r.result, r.reason, r.lease_end = ARGV[13], ARGV[14], ARGV[15], 0
if r.state == StateClaimed then
  r.lease_end = now + tonumber(ARGV[3])
end
return reply('ok', now, store(KEYS[1], r, now, tonumber(ARGV[2])))
