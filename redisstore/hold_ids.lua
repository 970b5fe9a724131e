-- The ids of holds.
--
-- What is known of ids stands in a hash in two generations, beside the settings. A live hold's field is
-- its digest; its value: expires, remembered, claims (8 each), 1 if it is kept when it expires (1), the number of
-- limits (2), what it holds of each, and what an expiry has charged (6 each), and the id. Ends are in buckets,
-- 65,536 fields of 3 bytes: digest (8), 1 committed or 2 cancelled and 4 if late (1), the time (7), how long it is
-- remembered (5), what was asked for (4), and what was applied (6).

local LIVE, LIVE_AMOUNTS = '>i8i8c8BI2', 28
local ENDED, ENDED_BYTES = '>c8BI7I5c4i6', 31
local COMMITTED, CANCELLED, EXPIRED = 1, 2, 3
local MAX_LISTED = 100

-- The ids that operations of this batch name, what is known of them, and what is to be written.
local ids = { kind = { bytes = 1 }, given = {}, live = {}, ends = {}, gone = {} }

-- recent is what is not forgotten yet of a bucket.
local function recent(ends)
  local left = string.gsub(ends, string.rep('.', ENDED_BYTES), function(ended)
    local _, _, time, lasts = unpack_struct(ENDED, ended)
    return time + lasts < now and '' or nil
  end)
  return left
end

-- load reads the ids' arguments: their number, the fields of each, the ids with what is asked of them,
-- and how many holds a client may have.
function holds.load(cur, prev)
  local count = tonumber(argument())
  ids.cur, ids.prev = cur, prev
  if count > 0 then
    local first = at
    ids.hash = fetch(ids.kind, cur, prev, at, at + 2 * count - 1)
    at = at + 2 * count
    for i = 1, count do
      local text = argument()
      local digest, claims, asked, ttl, remembered, expires, keep, id = unpack_struct('>c8c8c4i8i8i8B', text)
      local given = {
        digest = digest, claims = claims, answer = asked, ttl = ttl, remembered = remembered, expires = expires,
        keep = keep, id = sub(text, id), bucket = ARGV[first + 2 * i - 1],
      }
      ids.given[i] = given
      local values, aged = ids.hash.values, ids.hash.aged
      ids.live[given.digest] = values[2 * i] or nil
      local ends = values[2 * i + 1] or ''
      if aged and aged[2 * i + 1] then
        ends = recent(ends) -- a bucket that moves on leaves behind what is forgotten
      end
      ids.ends[given.bucket] = ends
    end
  end
  ids.max = tonumber(argument())
end

-- known is what is known of an id.
local function known(given)
  local hold = ids.live[given.digest]
  if type(hold) == 'string' then
    local text, at = hold, LIVE_AMOUNTS
    local expires, remembered, claims, keep, count = unpack_struct(LIVE, text)
    hold = {
      ended = 0, n = {}, kept = {}, expires = expires, time = expires, remembered = remembered, claims = claims,
      keep = keep == 1, id = given.id,
    }
    for i = 1, count do
      hold.n[i], hold.kept[i], at = unpack_struct('>I6I6', text, at)
    end
    ids.live[given.digest] = hold
  end
  if not hold then
    local ends = ids.ends[given.bucket]
    local at = place(ends, given.digest, ENDED_BYTES)
    if not at then
      return nil
    end
    hold = {}
    local flags, _
    _, flags, hold.time, hold.remembered, hold.answer, hold.applied = unpack_struct(ENDED, ends, at)
    hold.ended, hold.late = flags % 4, flags >= 4
  end
  if now > hold.time + hold.remembered then
    return nil
  end
  return hold
end

-- lives is for how long the ids' generation has to live that a hold is written to.
local function lives(us)
  local life = us + margin(us)
  local hash = ids.hash
  hash.life = max(hash.life or 0, life)
end

local function keep_live(given, hold)
  ids.live[given.digest], ids.gone[given.digest] = hold, nil
  hold.changed, ids.changed = true, true
  lives(hold.expires + hold.remembered - now)
end

local function keep_end(given, verb, hold, applied)
  local ends = ids.ends[given.bucket]
  local at = place(ends, given.digest, ENDED_BYTES)
  if at then
    ends = sub(ends, 1, at - 1) .. sub(ends, at + ENDED_BYTES)
  end
  local count = #ends / ENDED_BYTES
  while count > 1 and count % 2 == 0 do
    count = count / 2
  end
  if count == 1 then
    -- As long as a power of two: so a bucket is never twice as long as what it has to remember, however long a generation
    -- lasts, since some holds are long.
    ends = recent(ends)
  end
  local flags = (verb == 'cancel' and CANCELLED or COMMITTED) + (hold.late and 4 or 0)
  ids.ends[given.bucket] = ends .. pack(ENDED, given.digest, flags, now, hold.remembered, given.answer, applied)
  ids.ends_changed = ids.ends_changed or {}
  ids.ends_changed[given.bucket] = true
  ids.live[given.digest], ids.gone[given.digest], ids.changed = nil, true, true
  lives(hold.remembered)
end

-- save writes what has become of the ids.
function holds.save()
  local hash = ids.hash
  if not ids.changed then
    return
  end
  local gone = {}
  for digest in pairs(ids.gone) do
    gone[#gone + 1] = digest
  end
  if gone[1] then
    redis.call('HDEL', hash.cur, unpack(gone))
    if hash.before then
      redis.call('HDEL', hash.prev, unpack(gone))
    end
  end
  open(hash, hash)
  if hash.life > hash.now.life then
    hash.now.life, hash.renewed = hash.life, true
  end
  local list = hash.list
  for digest, hold in pairs(ids.live) do
    if type(hold) == 'table' and hold.changed then
      local text = pack(LIVE, hold.expires, hold.remembered, hold.claims, hold.keep and 1 or 0, #hold.n)
      for i = 1, #hold.n do
        text = text .. pack('>I6I6', hold.n[i], hold.kept[i])
      end
      list[#list + 1], list[#list + 2] = digest, text .. hold.id
    end
  end
  for bucket in pairs(ids.ends_changed or {}) do
    list[#list + 1], list[#list + 2] = bucket, ids.ends[bucket]
  end
  flush(hash)
end

-- list tells of the holds of a state, the next to expire and no more than MAX_LISTED: how many, and of each when it expires, its permits and its id.
function holds.list(state)
  local list, at, count = state.list or '', 1, 0
  local told = {}
  while at <= #list and count < MAX_LISTED do
    local part = read_part(list, at)
    local digest = sub(list, at, at + 7)
    local record = redis.call('HGET', ids.cur, digest) or redis.call('HGET', ids.prev, digest) or ''
    local id = ''
    if record ~= '' then
      local _, _, _, _, limits = unpack_struct(LIVE, record)
      id = sub(record, LIVE_AMOUNTS + 12 * limits)
    end
    count, at = count + 1, part.next
    told[count] = pack('>i8i8I2', part.expires, part.n, #id) .. id
  end
  answer(pack('>I4', count) .. table.concat(told))
end
