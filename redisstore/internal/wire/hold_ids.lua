-- The ids of holds.
--
-- What is known of ids stands in a hash in two generations, beside the settings, in 65,536 buckets: by the first
-- two bytes of an id's digest. A bucket is how many bytes of live holds it has (4), these, and ends of 31 bytes each:
--   live  its length (2), digest (8), when it expires (7), how long its end is remembered (5), the digest of its claims
--         (8), 1 if it is kept when it expires plus 2 if it was dropped (1), the number of limits (2), what it holds
--         of each, and what an expiry has charged (6 each), and the id; behind that a byte of 0, the newest epoch of the
--         limits' policies when it was written (7), and, if there are several, a tag of each limit (5: of its client and itself 4,
--         and its way, plus 128 if it was dropped). Earlier versions wrote the id alone
--   end   digest (8), 1 committed or 2 cancelled, 4 if late and 8 if reset (1), the time (7), how long it is remembered (5),
--         what was asked for (4), and what was applied (6)
-- An end that is remembered for longer than its 5 bytes hold, 12 days, says ids.longest there, and stands twice: once
-- more under ids.far_digest of its own, with the last instant at which it is known as its time, and 0 for how long.

local LIVE, LIVE_BYTES, AMOUNTS = '>I2c8I7I5c8BI2', 33, '>I6I6'
local ENDED, ENDED_BYTES = '>c8BI7I5c4i6', 31
local NO_IDS = '\0\0\0\0'
local GIVEN = '>c8c8c4i8i8i8BB' -- what an operation says of its hold: see holdEntry in hold.go
local COMMITTED, CANCELLED, EXPIRED = 1, 2, 3
local ANSWERED, RESOLVED, UNKNOWN, OTHER = 0, 1, 2, 3

-- The buckets that operations of this batch name, which of them have changed, and for how long they have to live.
local ids = { longest = 2 ^ 40 - 1, kind = { bytes = 1 }, buckets = {}, changed = {}, life = 0 }

-- find_id finds what is known of an id in a bucket: its place, and whether it is live.
local function find_id(bucket, digest)
  local at = string.find(bucket, digest, 5, true)
  if not at then
    return nil
  end
  local ends, record = 5 + unpack_struct('>I4', bucket), 5
  while at do
    while record < ends and record + 2 < at do
      record = record + unpack_struct('>I2', bucket, record)
    end
    if record + 2 == at and record < ends then
      return record, true
    elseif at >= ends and (at - ends) % ENDED_BYTES == 0 then
      return at, false
    end
    at = string.find(bucket, digest, at + 1, true)
  end
end

-- far_digest is under what the end of an id stands once more, and far_end is until when it is known, if it does.
-- They are in a table, since a script has 200 names at most.
function ids.far_digest(digest) return sub(digest, 2) .. sub(digest, 1, 1) end

function ids.far_end(bucket, digest)
  local at, live = find_id(bucket, ids.far_digest(digest))
  if at and not live then
    local _, _, until_then = unpack_struct(ENDED, bucket, at)
    return until_then
  end
end

-- recent is what is not forgotten yet of a bucket.
local function recent(bucket)
  local ends, at, live = 5 + unpack_struct('>I4', bucket), 5, {}
  while at < ends do
    local length, _, expires, remembered = unpack_struct(LIVE, bucket, at)
    if now <= expires + remembered then
      live[#live + 1] = sub(bucket, at, at + length - 1)
    end
    at = at + length
  end
  live = table.concat(live)
  local left = string.gsub(sub(bucket, ends), string.rep('.', ENDED_BYTES), function(ended)
    local digest, _, time, lasts = unpack_struct(ENDED, ended)
    local known_until = lasts == ids.longest and ids.far_end(bucket, digest) or time + lasts
    return known_until < now and '' or nil
  end)
  return pack('>I4', #live) .. live .. left
end

-- without is a bucket without what it has at a place.
local function without(bucket, at, live)
  if not live then
    return sub(bucket, 1, at - 1) .. sub(bucket, at + ENDED_BYTES)
  end
  local length = unpack_struct('>I2', bucket, at)
  return pack('>I4', unpack_struct('>I4', bucket) - length) .. sub(bucket, 5, at - 1) .. sub(bucket, at + length)
end

-- ids.with_live is a bucket with a live hold more.
function ids.with_live(bucket, record)
  return pack('>I4', unpack_struct('>I4', bucket) + #record) .. record .. sub(bucket, 5)
end

-- ids.pruned is what a bucket becomes, and before is what it was. When its length passes a power of two, what is forgotten goes:
-- so it is never twice as long as what it has to remember, however long a generation lasts, since some holds are long.
function ids.pruned(before, bucket)
  if #bucket >= 256 then
    local _, was = math.frexp(before and #before or 4)
    local _, is = math.frexp(#bucket)
    if is > was then
      bucket = recent(bucket)
    end
  end
  return bucket
end

-- ids.replace keeps a bucket, for so long at least.
function ids.replace(name, bucket, life)
  ids.buckets[name], ids.changed[name] = ids.pruned(ids.buckets[name], bucket), true
  ids.life = max(ids.life, life)
end

-- ids.fetch reads the ids' arguments: the fields of buckets, of 3 bytes each, and how many holds a client may have. It
-- returns the buckets from 2 on.
function ids.fetch()
  ids.cur, ids.prev = KEYS[next_key], KEYS[next_key + 1]
  next_key = next_key + 2
  local text, names, hash = argument(), {}, { values = {}, first = 1 }
  for i = 1, #text / 3 do
    names[i] = sub(text, 3 * i - 2, 3 * i)
  end
  if names[1] then
    hash = fetch(ids.kind, ids.cur, ids.prev, names, 1, #names)
  end
  ids.hash, hash.names, hash.size = hash, names, #names
  for i in pairs(hash.aged or {}) do
    hash.values[i] = recent(hash.values[i]) -- a bucket that moves on leaves behind what is forgotten
  end
  ids.max = tonumber(argument())
  return hash.values
end

-- ids.by_field makes them buckets by their fields, and returns how many operations name an id.
function ids.by_field()
  local values = ids.fetch()
  for i = 1, ids.hash.size do
    ids.buckets[ids.hash.names[i]] = values[i + 1] or NO_IDS
  end
  return ids.hash.size
end

-- bucket_of is where an id's bucket is.
local function bucket_of(digest) return '\0' .. sub(digest, 1, 2) end

-- ids.save writes what has become of the ids: fields and values.
function ids.save(list)
  local hash = ids.hash
  if list[1] then
    hash.life = ids.life + margin(ids.life)
    open(hash, hash)
    hash.list = list
    lives(hash, ids.life)
    flush(hash)
  end
end
