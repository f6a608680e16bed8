-- complete.lua: end a held claim as done.
--
-- KEYS[1]  the key
-- ARGV[1]  owner
-- ARGV[2]  incarnation of the log in which it was done; empty without a log
-- ARGV[3]  retention in milliseconds, at least 1: how long the key stays done
-- ARGV[4]  fingerprint of the payload
-- ARGV[5]  original id, if the id is hashed
-- ARGV[6]  result for duplicates
-- ARGV[7]  1: unclaimed: the key was never claimed here; absent, free and expired keys become done too
-- ARGV[8]  1: with unclaimed: a dead key becomes done too (a marked copy of a dead letter)
--
-- Replies
--   ok       done, by this call or by an earlier one of the same owner
--   stale    the claim is not the owner's: VALUE says whose; nothing was written
--   foreign  the value is not ours to read; nothing was written
--
-- Clock: this server's, for when it may be forgotten; the end of the lease does not matter as long as nobody took the claim.
-- Atomic: owner compared and done written in one step, so that done is never written over another's claim or done.

local owner, incarnation, unclaimed = ARGV[1], ARGV[2], ARGV[7] == '1'
local now = clock()
local r = load(KEYS[1], now, incarnation)
if not r then
  return reply('foreign', now)
end
if r.state == StateDone and r.owner == owner then
  return reply('ok', now, r.value)
end
if not mine(r, owner) and not (unclaimed and open(r, now, ARGV[8] == '1')) then
  return reply('stale', now, r.value)
end

take_up(r)
if ARGV[5] ~= '' then
  r.original = ARGV[5]
end
r.state, r.owner, r.incarnation, r.fingerprint, r.result = StateDone, owner, incarnation, ARGV[4], ARGV[6]
r.reason, r.lease_end, r.alone = '', 0, 0
return reply('ok', now, store(KEYS[1], r, now, tonumber(ARGV[3])))
