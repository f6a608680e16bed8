-- mode.lua: note in which mode a scope runs, or read it. RedisOnly asks no log, so this is where it and the other modes meet.
--
-- A scope has one note, without a time to live. It is gone with the server's data, and then the next process notes its own mode. Its
-- value is
--
--   idemq-mode1 MODE BY: REASON
--
-- MODE is transactional, logged or redis-only. BY: REASON says who changed it and why; nothing is there if nobody did.
--
-- KEYS[1]  the note
-- ARGV[1]  MODE
-- ARGV[2]  1: MODE is written whatever is noted; 0: only if nothing is
-- ARGV[3]  BY: REASON, or empty
--
-- Replies: {CODE, '', MODE as it is noted now}
--   noted    MODE is written
--   kept     a mode was noted already; nothing was written
--   foreign  the value is no note that we can read; nothing was written
--
-- Clock: none. Atomic: read and written in one step, so that of two processes that start at once one gives the mode.

local value = redis.call('GET', KEYS[1])
if value then
  local noted = string.match(value, '^idemq%-mode1 (%S+)')
  if not noted then
    return {'foreign', '', ''}
  end
  if ARGV[2] ~= '1' then
    return {'kept', '', noted}
  end
end
redis.call('SET', KEYS[1], 'idemq-mode1 ' .. ARGV[1] .. ' ' .. ARGV[3])
return {'noted', '', ARGV[1]}
