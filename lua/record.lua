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
-- leases, because an expired claim must be there to be counted as a death. Whatever writes a claim gives it a lease from then on, so
-- LEASE_END - UPDATED is the length of its lease, and a clock that is before UPDATED went back (see restart_lease).
--
-- Replies of all scripts that work on a key: {CODE, NOW, VALUE}. CODE is a word, listed in each script. NOW is this server's clock
-- when it answered, in milliseconds since 1970. VALUE is the key's value after the call as above, or the empty string if it has none.
--
-- Redis runs a script alone and does not undo one that fails, so each script writes at most once, as its last step.

local StateAbsent, StateFree, StateClaimed, StateDead, StateDone = 'absent', 'free', 'claimed', 'dead', 'done'

local HEADER = '^idemq1 (%l+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)\n()'

local function reply(code, now, value)
  return {code, now, value or ''}
end

local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

-- decode returns nil for a foreign value.
local function decode(value)
  local state, fence, lease_end, failures, deaths, alone_deaths, alone, generation, created, updated, expires, retention,
    l1, l2, l3, l4, l5, l6, at = string.match(value, HEADER)
  if state ~= StateFree and state ~= StateClaimed and state ~= StateDead and state ~= StateDone then
    return nil
  end
  local from2 = at + l1
  local from3 = from2 + l2
  local from4 = from3 + l3
  local from5 = from4 + l4
  local from6 = from5 + l5
  if from6 + l6 ~= #value + 1 then
    return nil
  end
  return {
    value = value,
    state = state,
    fence = tonumber(fence),
    lease_end = tonumber(lease_end),
    failures = tonumber(failures),
    deaths = tonumber(deaths),
    alone_deaths = tonumber(alone_deaths),
    alone = tonumber(alone),
    generation = tonumber(generation),
    created = tonumber(created),
    updated = tonumber(updated),
    expires = tonumber(expires),
    retention = tonumber(retention),
    owner = string.sub(value, at, from2 - 1),
    incarnation = string.sub(value, from2, from3 - 1),
    fingerprint = string.sub(value, from3, from4 - 1),
    original = string.sub(value, from4, from5 - 1),
    result = string.sub(value, from5, from6 - 1),
    reason = string.sub(value, from6),
  }
end

-- absent returns the record of a key that has none; its fence is that of a record that no longer counts.
local function absent(now, fence)
  return {
    value = '', state = StateAbsent, fence = fence, lease_end = 0, failures = 0, deaths = 0, alone_deaths = 0, alone = 0, generation = 0,
    created = now, updated = now, expires = 0, retention = 0,
    owner = '', incarnation = '', fingerprint = '', original = '', result = '', reason = '',
  }
end

-- load returns the record of key, or nil if its value is foreign. (A value that is not a string makes GET fail with WRONGTYPE, and so
-- the script, which has written nothing.) With an incarnation, a key that was settled in another one counts as absent: in the log, it
-- may be so.
local function load(key, now, incarnation)
  local value = redis.call('GET', key)
  if not value then
    return absent(now, 0)
  end
  local r = decode(value)
  if r and incarnation and (r.state == StateDone or r.state == StateDead) and r.incarnation ~= incarnation then
    return absent(now, r.fence)
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
  -- %.0f, because Lua's own conversion gives 1.7e+12 for such numbers; not %s, which ends at a zero byte.
  local value = string.format('idemq1 %s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %d %d %d %d %d %d\n',
    r.state, r.fence, r.lease_end, r.failures, r.deaths, r.alone_deaths, r.alone, r.generation, r.created, r.updated, r.expires, r.retention,
    #r.owner, #r.incarnation, #r.fingerprint, #r.original, #r.result, #r.reason)
    .. r.owner .. r.incarnation .. r.fingerprint .. r.original .. r.result .. r.reason
  local remembered = math.max(r.retention, 1)
  if r.state == StateClaimed then
    remembered = math.max(remembered, 2 * (r.lease_end - now))
  end
  redis.call('SET', key, value, 'PX', string.format('%.0f', remembered))
  return value
end

-- restart_lease returns the value of a key that another caller may not have. Where the clock went back since a claim was written (set by
-- hand, or a failover to a machine with another clock), its lease begins again now: whoever waits for it waits for one lease, not for
-- as long as the clock went back, and its owner has no less time than it was given.
local function restart_lease(key, r, now)
  if r.state ~= StateClaimed or now >= r.updated then
    return r.value
  end
  r.lease_end = now + r.lease_end - r.updated
  return store(key, r, now, 0)
end
