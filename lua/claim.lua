-- claim.lua: take the right to work on a key.
--
-- KEYS[1]   the key
-- KEYS[2]   the mark of its shard, given only where Redis is the authority (RedisOnly); see remember.lua
-- ARGV[1]   owner of this attempt, random
-- ARGV[2]   incarnation of the log as the caller knows it; empty without a log
-- ARGV[3]   lease in milliseconds, at least 1
-- ARGV[4]   retention in milliseconds, at least 1
-- ARGV[5]   fingerprint of the payload
-- ARGV[6]   original id, if the id is hashed
-- ARGV[7]   1: nothing else runs in the caller's process
-- ARGV[8]   1: a marked copy of a dead letter; for it, dead is free
-- ARGV[9]   with KEYS[2]: number of shards of the caller
-- ARGV[10]  with KEYS[2]: token of the memory that the caller knows
--
-- Replies
--   claimed  the claim is the owner's: new, or its own already, then with the same fence, a new lease and nothing counted
--   taken    the same, taken over from an owner whose lease had ended: one death more
--   busy     another owner's lease is running; if the clock went back since it was written, anew from now
--   done     applied before, in this incarnation
--   dead     parked as a dead letter, in this incarnation
--   foreign  the value is not ours to read; nothing was written
--   lost     the mark is gone or another memory's: what Redis knew is lost; nothing was written
--   shards   the scope is spread over another number of shards, which is VALUE; nothing was written
--
-- Clock: this server's. Atomic, because the end of a lease is tested and the claim taken over in one step: of two claimants only
-- one can win.

local owner, incarnation = ARGV[1], ARGV[2]
local lease, retention = tonumber(ARGV[3]), tonumber(ARGV[4])
local now = clock()

if KEYS[2] then
  local mark = redis.call('GET', KEYS[2]) or ''
  local shards, token = string.match(mark, '^idemq%-mark1 (%d+) (%S+) ')
  if shards and shards ~= ARGV[9] then
    return reply('shards', now, shards)
  end
  if token ~= ARGV[10] then
    return reply('lost', now)
  end
end

local r = load(KEYS[1], now, incarnation)
if not r then
  return reply('foreign', now)
end

local code = 'claimed'
if not mine(r, owner) then -- else it asks again: the same fence, and nothing counts
  if not open(r, now, ARGV[8] == '1') then
    local codes = {[StateClaimed] = 'busy', [StateDead] = 'dead', [StateDone] = 'done'}
    return reply(codes[r.state], now, restart_lease(KEYS[1], r, now))
  end
  take_up(r)
  if r.state == StateClaimed then
    code = 'taken'
    r.deaths = r.deaths + 1
    r.alone_deaths = r.alone_deaths + r.alone
  end
  r.fence = math.max(r.fence + 1, now) -- also when the clock went back, or the key was forgotten
end
if ARGV[6] ~= '' then
  r.original = ARGV[6]
end
r.state, r.owner, r.incarnation, r.fingerprint, r.reason = StateClaimed, owner, incarnation, ARGV[5], ''
r.alone, r.lease_end = tonumber(ARGV[7]), now + lease
return reply(code, now, store(KEYS[1], r, now, retention))
