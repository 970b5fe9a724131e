-- The sliding window log's encodings: how a log is kept in one key. Each loads
-- what sliding_window_log.lua describes and saves what a transition left.
--
-- Times and totals are kept modulo a power of two, and read back from the newest:
-- what is live spans less than half of it, so there is one answer. A log says whether any of
-- its permits are held; holds.lua keeps by whom.

-- unwrap is the value at or below newest that is congruent to residue.
local function unwrap(newest, residue, modulus)
  return newest - (newest - residue) % modulus
end

-- TOTALS bounds running totals: beyond it they are shifted back.
local TOTALS = 2 ^ 52

-- rebase keeps totals below 2^53; modulus is the encoding's.
local function rebase(log, modulus)
  if log.total >= TOTALS then
    local shift = floor(log.gone / modulus) * modulus
    log.total, log.gone = log.total - shift, log.gone - shift
  end
end

local function empty_log()
  return { total = 0, stored = 0, gone = 0, request = 0, before = function() return 0 end }
end

-- first is the smallest i in [low, high + 1] for which holds(i), which is monotone.
local function first(low, high, holds)
  while low <= high do
    local middle = floor((low + high) / 2)
    if holds(middle) then
      high = middle - 1
    else
      low = middle + 1
    end
  end
  return low
end

-- BIG holds struct's formats of a big-endian number by its width.
local BIG = { '>I1', '>I2', '>I3', '>I4', '>I5', '>I6', '>I7' }

-- packed: one string. A header of 47 bytes: the widths of a record's time and total
-- (1 byte each), at (7), total (7), gone (7), request (7), capacity (5), window (6),
-- interval (6); then records of a time and a total each, modulo 256^width.
local packed = {}

local HEAD = '>I1I1I7I7I7I7I5I6I6'
local HEADER = 47
local HAS_HOLDS = 64 -- is added to the first width when permits of the log are held
local WRITTEN = 4096 -- a value below it is written whole
local READ = 32768   -- a value below it is read whole

function packed.load(key)
  local head = redis.call('GETRANGE', key, 0, READ - 1)
  if head == '' then
    return empty_log()
  end
  local size = #head
  local log = {}
  log.times, log.totals, log.at, log.total, log.gone, log.request, log.capacity, log.window, log.interval =
    struct.unpack(HEAD, head)
  if log.times >= HAS_HOLDS then
    log.times, log.held = log.times - HAS_HOLDS, true
  end
  if size == READ then
    size = redis.call('STRLEN', key)
  end
  local function read(from, width) -- a long value's bytes where they are wanted
    if size < READ then
      return (struct.unpack(BIG[width], head, from))
    end
    return (struct.unpack(BIG[width], redis.call('GETRANGE', key, from - 1, from + width - 2)))
  end
  local width = log.times + log.totals
  local count = (size - HEADER) / width
  if count == 0 then
    log.at = nil
  end
  local newest, newest_total = log.at, log.total
  local times, totals = 256 ^ log.times, 256 ^ log.totals
  local function time_of(i)
    return unwrap(newest, read(HEADER + (i - 1) * width + 1, log.times), times)
  end
  local function total_of(i)
    return unwrap(newest_total, read(HEADER + (i - 1) * width + log.times + 1, log.totals), totals)
  end
  log.stored, log.count, log.stored_at = log.total, count, log.at
  log.whole = size < WRITTEN and head
  log.time_of, log.total_of = time_of, total_of
  log.before = function(t)
    local i = first(1, count, function(i) return time_of(i) > t end) - 1
    return i > 0 and total_of(i) or 0
  end
  log.reached = function(n)
    return time_of(first(1, count, function(i) return total_of(i) >= n end))
  end
  return log
end

-- widths are the bytes that a limit's times and totals need: twice what can be live.
local function widths(limit)
  local times, totals = 1, 1
  while 256 ^ times <= 2 * max(limit.window, limit.interval) do
    times = times + 1
  end
  while 256 ^ totals <= 2 * (limit.capacity + limit.capacity + limit.debt) do
    totals = totals + 1
  end
  return times, totals
end

local function record(log, at, total)
  return struct.pack(BIG[log.times] .. string.sub(BIG[log.totals], 2), at % 256 ^ log.times, total % 256 ^ log.totals)
end

function packed.save(key, log, limit, ttl)
  local times, totals = widths(limit)
  local count = log.count or 0
  local live = count > 0 and first(1, count, function(i) return log.total_of(i) > log.gone end) or 1
  local left = count - live + 1
  local merge = left > 0 and log.fresh and log.at == log.stored_at
  local body
  if count > 0 and (log.times < times or log.totals < totals) then
    -- The limit has grown: write the live records again, wider. Records
    -- of an old limit may need a width that the new one does not.
    local parts = {}
    local old = log
    log = setmetatable({ times = max(log.times, times), totals = max(log.totals, totals) }, { __index = old })
    for i = live, merge and count - 1 or count do
      parts[#parts + 1] = record(log, old.time_of(i), old.total_of(i))
    end
    body = table.concat(parts)
  elseif count == 0 then
    log.times, log.totals = times, totals
    body = ''
  end
  rebase(log, 256 ^ log.totals)
  local width = log.times + log.totals
  local head = struct.pack(HEAD, log.times + (log.held and HAS_HOLDS or 0), log.totals, log.at or 0, log.total, log.gone,
    log.request, limit.capacity, limit.window, limit.interval)
  local fresh = log.fresh and record(log, log.at, log.total) or ''
  local whole = log.whole
  local stale = count > 0 and (log.at - log.time_of(1) >= 256 ^ log.times / 2
    or log.total - log.total_of(1) >= 256 ^ log.totals / 2)
  if not body and (whole or stale or live - 1 >= left) then
    -- Drop what has left: of a short value at once, of a long one when it is half,
    -- or before its times and totals could be read as newer ones.
    local from = HEADER + (live - 1) * width
    local to = HEADER + (merge and count - 1 or count) * width
    body = whole and string.sub(whole, from + 1, to) or ''
    if not whole and to > from then
      body = redis.call('GETRANGE', key, from, to - 1)
    end
  end
  if body then
    redis.call('SET', key, head .. body .. fresh, 'PX', ttl)
    return
  end
  redis.call('SETRANGE', key, 0, head)
  if merge then
    redis.call('SETRANGE', key, HEADER + (count - 1) * width, fresh)
  elseif log.fresh then
    redis.call('APPEND', key, fresh)
  end
  redis.call('PEXPIRE', key, ttl)
end

-- The other two encodings keep totals modulo 2^48 in text, and the head beside the
-- records: gone, request, capacity, window, interval, total, and h when permits of the log are held.
local MODULUS = 2 ^ 48

local function head_text(log, limit)
  return string.format('%.0f:%.0f:%.0f:%.0f:%.0f:%.0f%s',
    log.gone, log.request, limit.capacity, limit.window, limit.interval, log.total, log.held and 'h' or '')
end

local function parse_head(log, text)
  local gone, request, capacity, window, interval, total, held =
    string.match(text, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)(h?)$')
  log.held = held == 'h'
  log.gone, log.request, log.total = tonumber(gone), tonumber(request), tonumber(total)
  log.capacity, log.window, log.interval = tonumber(capacity), tonumber(window), tonumber(interval)
  log.stored = log.total
end

-- What has left is dropped in steps, since a server that drops 200,000 records at once
-- answers nobody meanwhile: each call drops about so many at most, and a log of a sorted
-- set at least a few with each write, more than the write adds. Records that remain
-- change no answer: a log's gone says that they have left.
local spare = { zset = 1000, stream = 10000 }
local FEW = 4

-- zset: a sorted set. Each record is a member, its total, with its time as the
-- score; the head is the member with the score -1.
local zset = {}

function zset.load(key)
  local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if not newest[1] then
    return empty_log()
  end
  local log = {}
  log.text = redis.call('ZRANGE', key, 0, 0)[1]
  parse_head(log, log.text)
  local newest_total = log.total
  if tonumber(newest[2]) >= 0 then
    log.at, log.member = tonumber(newest[2]), newest[1]
    log.stored_at = log.at
  end
  log.before = function(t)
    local found = redis.call('ZREVRANGEBYSCORE', key, string.format('%.0f', t), 0, 'LIMIT', 0, 1)
    return found[1] and unwrap(newest_total, tonumber(found[1]), MODULUS) or 0
  end
  log.reached = function(n)
    local count = redis.call('ZCARD', key) - 1 -- the head has rank 0
    local rank = first(1, count, function(i)
      return unwrap(newest_total, tonumber(redis.call('ZRANGE', key, i, i)[1]), MODULUS) >= n
    end)
    return tonumber(redis.call('ZRANGE', key, rank, rank, 'WITHSCORES')[2])
  end
  return log
end

-- live_from is the time of the oldest record to keep, given what a transition left.
local function live_from(log, limit)
  local cut = log.at - limit.window
  if log.before(cut) >= log.gone then
    return cut + 1 -- what left did so by its age
  end
  if log.gone >= log.stored then
    return log.fresh and log.at or log.at + 1
  end
  return log.reached(log.gone + 1)
end

-- drop drops records of before a time.
local function drop(key, from)
  local most = max(spare.zset, FEW)
  local past = redis.call('ZRANGE', key, most + 1, most + 1, 'WITHSCORES')[2] -- the head has rank 0
  from = past and min(from, tonumber(past)) or from
  spare.zset = spare.zset - redis.call('ZREMRANGEBYSCORE', key, 0, string.format('(%.0f', from))
end

function zset.save(key, log, limit, ttl)
  if log.text and log.gone >= log.stored then
    redis.call('UNLINK', key) -- nothing stored is live
  elseif log.text then
    drop(key, live_from(log, limit))
    redis.call('ZREM', key, log.text)
  end
  rebase(log, MODULUS)
  local add = { -1, head_text(log, limit) }
  if log.fresh then
    if log.member and log.stored_at == log.at then
      redis.call('ZREM', key, log.member)
    end
    add[3], add[4] = string.format('%.0f', log.at), string.format('%.0f', log.total % MODULUS)
  end
  redis.call('ZADD', key, unpack(add))
  redis.call('PEXPIRE', key, ttl)
end

-- stream: a stream. Each record is an entry, its id the time and a number to tell
-- apart records of one instant; the newest entry carries the head.
local stream = {}

local PEEK = 32 -- so many records are looked at one after another

function stream.load(key)
  local newest = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not newest then
    return empty_log()
  end
  local log = {}
  parse_head(log, newest[2][2])
  local newest_total = log.total
  local at, number = string.match(newest[1], '^(%d+)-(%d+)$')
  log.at, log.number = tonumber(at), tonumber(number)
  log.stored_at = log.at
  local function total_of(entry)
    return unwrap(newest_total, tonumber(string.match(entry[2][2], '(%d+)h?$')) % MODULUS, MODULUS)
  end
  local oldest
  log.before = function(t)
    -- XREVRANGE from before the oldest record walks through all.
    oldest = oldest or tonumber(string.match(redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1][1], '^%d+'))
    if t < oldest then
      return 0
    end
    return total_of(redis.call('XREVRANGE', key, string.format('%.0f', t), '-', 'COUNT', 1)[1])
  end
  log.reached = function(n)
    -- Totals grow with time: the newest record is one that has reached n, and halving
    -- the time before it finds the first.
    local low, high = 0, log.stored_at
    for _, entry in ipairs(redis.call('XRANGE', key, '-', '+', 'COUNT', PEEK)) do
      low = tonumber(string.match(entry[1], '^%d+'))
      if total_of(entry) >= n then
        return low
      end
    end
    while low < high do
      local middle = floor((low + high) / 2)
      local entry = redis.call('XREVRANGE', key, string.format('%.0f', middle), '-', 'COUNT', 1)[1]
      if total_of(entry) >= n then
        high = tonumber(string.match(entry[1], '^%d+'))
      else
        low = middle + 1
      end
    end
    return high
  end
  return log
end

function stream.save(key, log, limit, ttl)
  local at, number = log.at or now, 0 -- without a record, which a log of which nothing is left has when it is held
  local from = log.number and live_from(log, limit)
  if log.number and (not log.fresh or at == log.stored_at) then
    at, number = log.stored_at, log.number + 1
  end
  if log.number and log.gone >= log.stored then
    -- Nothing stored is live. Its newest entry would forbid ids of earlier times,
    -- to which a clock may have stepped back.
    redis.call('UNLINK', key)
    from = nil
  end
  rebase(log, MODULUS)
  redis.call('XADD', key, string.format('%.0f-%.0f', at, number), 'h', head_text(log, limit))
  if from and from <= at and spare.stream > 0 then
    -- Whole nodes go, of which the server drops 100 at most.
    spare.stream = spare.stream - redis.call('XTRIM', key, 'MINID', '~', string.format('%.0f', from))
  end
  redis.call('PEXPIRE', key, ttl)
end

for letter, encoding in pairs({ p = packed, z = zset, x = stream }) do
  kinds[letter] = {
    twin = sliding_window_log, log = encoding,
    describe = function(limit, window, interval, counts)
      limit.window, limit.interval, limit.count_denied = window, interval, counts == 1
    end,
  }
end
