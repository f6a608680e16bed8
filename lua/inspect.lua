-- inspect.lua: read a key without changing anything.
--
-- KEYS[1]  the key
--
-- Replies
--   ok       VALUE, and NOW to judge its lease by
--   foreign  the value is not ours to read
--
-- Clock: this server's. Atomic: value and clock are of one moment.

local now = clock()
local r = load(KEYS[1], now)
if not r then
  return reply('foreign', now)
end
return reply('ok', now, r.value)
