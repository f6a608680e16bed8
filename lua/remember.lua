-- remember.lua: write the mark by which a shard's loss of memory is noticed. Only where Redis is the authority (RedisOnly).
--
-- A scope has one mark a shard, without a time to live: it is gone exactly if the server has lost its data. Its value is
--
--   idemq-mark1 SHARDS TOKEN WHOLE IDENTITY
--
-- SHARDS is over how many shards the scope is spread. TOKEN is random and names the memory: all marks of a scope carry the one of
-- shard 0. WHOLE is 1 in the mark of shard 0 once all other marks were written, else 0. IDENTITY says which server wrote the mark
-- (its run_id and master_replid), "?" if that is not known.
--
-- KEYS[1]  the mark
-- ARGV[1]  SHARDS
-- ARGV[2]  TOKEN
-- ARGV[3]  IDENTITY
-- ARGV[4]  1: this is shard 0 and a token that is there is adopted; 0: the mark has to carry TOKEN
-- ARGV[5]  1: all other marks are written
--
-- Replies: {CODE, TOKEN, WHOLE}; for shards: {CODE, SHARDS, ''}
--   new      there was no mark; it is written
--   same     the mark is there and its server is the same
--   lost     the mark was another memory's or written by another server; it is written anew, and so is the loss accepted
--   shards   the scope is spread over another number of shards; nothing was written
--   foreign  the value is no mark that we can read; nothing was written
--
-- Clock: none. Atomic: read and written in one step, so that of two processes that start at once one gives the token.

local shards, token, identity, whole = ARGV[1], ARGV[2], ARGV[3], ARGV[5]

local function mark(code)
  redis.call('SET', KEYS[1], table.concat({'idemq-mark1', shards, token, whole, identity}, ' '))
  return {code, token, whole}
end

local value = redis.call('GET', KEYS[1])
if not value then
  return mark('new')
end
local its_shards, its_token, its_whole, its_identity = string.match(value, '^idemq%-mark1 (%d+) (%S+) ([01]) (%S+)$')
if not its_shards then
  return {'foreign', '', ''}
end
if its_shards ~= shards then
  return {'shards', its_shards, ''}
end
local other_server = its_identity ~= identity and its_identity ~= '?' and identity ~= '?'
if other_server or (its_token ~= token and ARGV[4] ~= '1') then
  return mark('lost')
end
if its_token == token and whole == '1' and its_whole == '0' then
  return mark('same')
end
return {'same', its_token, its_whole}
