-- record.lua: what every script of this folder begins with. A script that is sent to Redis is this file followed by its own.
--
-- A key holds one value, so that no part of a claim can be lost alone: a header of one line, then six strings of bytes.
--
--   idemq1 STATE FENCE LEASE_END FAILURES DEATHS ALONE_DEATHS ALONE GENERATION CREATED UPDATED EXPIRES RETENTION L1 L2 L3 L4 L5 L6
--   OWNER INCARNATION FINGERPRINT ORIGINAL RESULT REASON          (after a newline, joined without separators; L1 to L6 are their lengths)
--
-- STATE is free, claimed, dead or done. FENCE, LEASE_END, CREATED, UPDATED and EXPIRES are milliseconds since 1970 by this server's
-- clock (FENCE at least); EXPIRES is 0 unless done. RETENTION is milliseconds.
-- ALONE is 0 or 1. The number in "idemq1" is the version of the format: a program reads its own version and the one before (there is
-- none before 1 yet). Anything else at the key, an older or newer version too, is FOREIGN: it is reported, never overwritten.
--
-- The lease is in the value; the key's time to live is only how long Redis may remember: the retention, and never less than two
-- leases, because an expired claim must be there to be counted as a death.
--
-- Replies of all scripts that work on a key: {CODE, NOW, VALUE}. CODE is a word, listed in each script. NOW is this server's clock
-- when it answered, in milliseconds since 1970. VALUE is the key's value after the call as above, or the empty string if it has none.
--
-- Redis runs a script alone and does not undo one that fails, so each script writes at most once, as its last step.

local StateAbsent, StateFree, StateClaimed, StateDead, StateDone = 'absent', 'free', 'claimed', 'dead', 'done'

-- In this order in the header and behind it.
local NUMBERS = {'fence', 'lease_end', 'failures', 'deaths', 'alone_deaths', 'alone', 'generation', 'created', 'updated', 'expires', 'retention'}
local STRINGS = {'owner', 'incarnation', 'fingerprint', 'original', 'result', 'reason'}
local HEADER = '^idemq1 (%l+)' .. string.rep(' (%d+)', #NUMBERS + #STRINGS) .. '\n()'

local function reply(code, now, value)
  return {code, now, value or ''}
end

local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- Lua's own conversion gives 1.7e+12 for such numbers.
local function digits(n)
  return string.format('%.0f', n)
end

-- decode returns nil for a foreign value.
local function decode(value)
  local parts = {string.match(value, HEADER)}
  if #parts == 0 then
    return nil
  end
  local r = {state = parts[1], value = value}
  for i, name in ipairs(NUMBERS) do
    r[name] = tonumber(parts[1 + i])
  end
  local at = parts[#parts]
  for i, name in ipairs(STRINGS) do
    local length = tonumber(parts[1 + #NUMBERS + i])
    r[name] = string.sub(value, at, at + length - 1)
    at = at + length
  end
  local known = r.state == StateFree or r.state == StateClaimed or r.state == StateDead or r.state == StateDone
  if not known or at ~= #value + 1 then
    return nil
  end
  return r
end

-- create returns the record of an absent key.
local function create(now)
  local r = {state = StateAbsent, value = ''}
  for _, name in ipairs(NUMBERS) do
    r[name] = 0
  end
  for _, name in ipairs(STRINGS) do
    r[name] = ''
  end
  r.created = now
  return r
end

-- load returns the record of key, or nil if its value is foreign. (A value that is not a string makes GET fail with WRONGTYPE, and so
-- the script, which has written nothing.) With an incarnation, a key that was settled in another one counts as absent: in the log, it
-- may be so. Only its fence goes on.
local function load(key, now, incarnation)
  local absent = create(now)
  local value = redis.call('GET', key)
  if not value then
    return absent
  end
  local r = decode(value)
  if r and incarnation and (r.state == StateDone or r.state == StateDead) and r.incarnation ~= incarnation then
    absent.fence = r.fence
    return absent
  end
  return r
end

-- live says whether r is claimed by somebody whose lease has not ended.
local function live(r, now)
  return r.state == StateClaimed and r.lease_end > now
end

-- mine says whether owner holds the claim. How much of its lease is left does not matter.
local function mine(r, owner)
  return r.state == StateClaimed and r.owner == owner
end

-- open says whether anybody may take the key.
local function open(r, now, redriven)
  return r.state == StateAbsent or r.state == StateFree or (r.state == StateClaimed and not live(r, now))
    or (r.state == StateDead and redriven)
end

-- take_up makes a dead key one that is tried again, in its next generation.
local function take_up(r)
  if r.state == StateDead then
    r.failures, r.deaths, r.alone_deaths = 0, 0, 0
    r.generation = r.generation + 1
    r.fingerprint = ''
  end
end

-- store writes r and returns the value. Done is remembered for just retention milliseconds, anything else for the longest retention
-- that it was written with.
local function store(key, r, now, retention)
  r.updated = now
  if r.state == StateDone then
    r.retention, r.expires = retention, now + retention
  else
    r.retention, r.expires = math.max(r.retention, retention), 0
  end
  local head, tail = {'idemq1', r.state}, {}
  for _, name in ipairs(NUMBERS) do
    head[#head + 1] = digits(r[name])
  end
  for _, name in ipairs(STRINGS) do
    head[#head + 1] = digits(#r[name])
    tail[#tail + 1] = r[name]
  end
  local value = table.concat(head, ' ') .. '\n' .. table.concat(tail)
  local remembered = math.max(r.retention, 1)
  if r.state == StateClaimed then
    remembered = math.max(remembered, 2 * (r.lease_end - now))
  end
  redis.call('SET', key, value, 'PX', digits(remembered))
  return value
end
