-- renew.lua: make a held claim last longer.
--
-- KEYS[1]  the key
-- ARGV[1]  owner
-- ARGV[2]  lease in milliseconds from now, at least 1
-- ARGV[3]  incarnation of the log as the caller knows it; empty without a log
--
-- Replies
--   ok       the lease ends that much later than now; also if it had ended and nobody took the claim
--   stale    the claim is not the owner's; nothing was written
--   foreign  the value is not ours to read; nothing was written
--
-- Clock: this server's. Atomic: owner compared and lease written in one step, so that a claim that was taken over is never renewed.

local now = clock()
local r = load(KEYS[1], now, ARGV[3])
if not r then
  return reply('foreign', now)
end
if not mine(r, ARGV[1]) then
  return reply('stale', now, r.value)
end
r.lease_end = now + tonumber(ARGV[2])
return reply('ok', now, store(KEYS[1], r, now, 0))
