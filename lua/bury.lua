-- bury.lua: end a held claim as dead. The dead letter is stored before.
--
-- KEYS[1]  the key
-- ARGV[1]  owner
-- ARGV[2]  incarnation of the log in which it died; empty without a log
-- ARGV[3]  retention in milliseconds; 0, or less than the claim's, keeps the claim's
-- ARGV[4]  reason, for people
-- ARGV[5]  1: unclaimed: the key was never claimed here; absent, free, expired and dead keys become dead too
-- ARGV[6]  fingerprint of the payload, for a key that is new here
-- ARGV[7]  original id, if the id is hashed, for a key that is new here
--
-- Replies
--   ok       dead, by this call or by an earlier one of the same owner
--   stale    the claim is not the owner's: VALUE says whose; nothing was written
--   foreign  the value is not ours to read; nothing was written
--
-- Clock: this server's. Atomic: owner compared and dead written in one step, so that dead is never written over done, nor over the
-- claim of another.

local owner, incarnation, unclaimed = ARGV[1], ARGV[2], ARGV[5] == '1'
local now = clock()
local r = load(KEYS[1], now, incarnation)
if not r then
  return reply('foreign', now)
end
if r.state == StateDead and r.owner == owner then
  return reply('ok', now, r.value)
end
if not mine(r, owner) and not (unclaimed and open(r, now, true)) then
  return reply('stale', now, r.value)
end

if r.state == StateAbsent then
  r.fingerprint, r.original = ARGV[6], ARGV[7]
end
r.state, r.owner, r.incarnation, r.reason = StateDead, owner, incarnation, ARGV[4]
r.lease_end, r.alone = 0, 0
return reply('ok', now, store(KEYS[1], r, now, tonumber(ARGV[3])))
