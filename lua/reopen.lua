-- reopen.lua: turn a dead key into a free one, by hand.
--
-- KEYS[1]  the key
-- ARGV[1]  who did it and why, kept as the reason
--
-- Replies
--   ok       free: one generation later, counts 0, no fingerprint
--   alive    the key is not dead: VALUE is how it is; nothing was written
--   foreign  the value is not ours to read; nothing was written
--
-- Clock: this server's. Atomic: the state is tested and changed in one step, so that of two who reopen only one does.

local now = clock()
local r = load(KEYS[1], now)
if not r then
  return reply('foreign', now)
end
if r.state ~= StateDead then
  return reply('alive', now, r.value)
end
take_up(r)
r.state, r.reason = StateFree, ARGV[1]
return reply('ok', now, store(KEYS[1], r, now, 0))
