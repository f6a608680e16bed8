-- release.lua: free a held claim, counting a failure or nothing.
--
-- KEYS[1]  the key
-- ARGV[1]  owner
-- ARGV[2]  incarnation of the log as the caller knows it; empty without a log
-- ARGV[3]  1: the handler failed, which is counted; 0: handed back, which is not
-- ARGV[4]  number of failures that the log returned; 0: it is counted here
-- ARGV[5]  retention in milliseconds; 0, or less than the claim's, keeps the claim's
-- ARGV[6]  1: unclaimed: the key was never claimed here; absent, free and expired keys are freed too
-- ARGV[7]  1: with unclaimed: a dead key is freed too, its counts starting again (a marked copy of a dead letter)
-- ARGV[8]  fingerprint of the payload, for a key that is new or dead
-- ARGV[9]  original id, if the id is hashed, for a key that is new or dead
--
-- Replies
--   ok       free, by this call or by an earlier one of the same owner; the failure is counted once
--   stale    the claim is not the owner's: VALUE says whose; nothing was written
--   foreign  the value is not ours to read; nothing was written
--
-- A free key keeps its counts and its last owner. Clock: this server's. Atomic: owner compared and failure counted in one step, so
-- that a repeated release counts once and another's claim is never freed.

local owner, incarnation, unclaimed = ARGV[1], ARGV[2], ARGV[6] == '1'
local failed, told = ARGV[3] == '1', tonumber(ARGV[4])
local now = clock()
local r = load(KEYS[1], now, incarnation)
if not r then
  return reply('foreign', now)
end
if r.state == StateFree and r.owner == owner then
  return reply('ok', now, r.value)
end
if not mine(r, owner) and not (unclaimed and open(r, now, ARGV[7] == '1')) then
  return reply('stale', now, r.value)
end

if r.state == StateAbsent or r.state == StateDead then
  take_up(r)
  r.fingerprint = ARGV[8]
  if ARGV[9] ~= '' then
    r.original = ARGV[9]
  end
end
if failed and told > 0 then
  r.failures = told
elseif failed then
  r.failures = r.failures + 1
end
r.state, r.owner, r.incarnation = StateFree, owner, incarnation
r.reason, r.lease_end, r.alone = '', 0, 0
return reply('ok', now, store(KEYS[1], r, now, tonumber(ARGV[5])))
