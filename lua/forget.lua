-- forget.lua: remove a key, by hand. Its next delivery is new and takes effect again.
--
-- KEYS[1]  the key
--
-- Replies
--   ok       the key is gone, or was never there
--   busy     a live claim is held: VALUE says whose; nothing was removed; if the clock went back, its lease is anew from now
--   foreign  the value is not ours to read; nothing was removed
--
-- Clock: this server's. Atomic: the lease is tested and the key removed in one step, so that no running claim is removed.

local now = clock()
local r = load(KEYS[1], now)
if not r then
  return reply('foreign', now)
end
if live(r, now) then
  return reply('busy', now, restart_lease(KEYS[1], r, now))
end
redis.call('DEL', KEYS[1])
return reply('ok', now)
