-- The first part, when all of its operations reserve, commit or cancel, and none touches a log, a calendar or a leaky bucket.
-- It carries out what most of them are: a reserve of an id that is not known, when all limits admit it, and a
-- commit or a cancel in time that charges nothing beyond the hold. It leaves the others to first_part.lua, and with them
-- what follows on their ids and states: of such a batch the client asks again.
--
-- The arguments are those of batch.lua, but an operation is
--   >B verb, >B growth, >I2 states, >I2 number of its id's bucket, >c8 digest of its id
--   >i8 TTL, >I5 how long it is remembered      of a reserve
--   >c8 digest of the claims, >I5 what is asked of a commit and a cancel
--   >I2i8I4 for each state                      as in batch.lua
--   >I2 length and record                       of a reserve, from remembered on as hold_ids.lua has it
-- The answer to an operation is LEFT, or
--   >B of hold_verbs.lua, >I6 how much came back
--   >I7I7I7I6 for each limit                    its state's numbers, and how many permits are held of it
--   >I7I7 behind places and with growth         when the first and the last hold expire, 0 for none; with growth the first at
--                                               which permits come back
--
-- Strings are most of what an operation costs: a state and a bucket of ids stay the strings that they are stored as, each is
-- made at once, of all that it consists of, and a batch of one group, which most are, has no list of limits.

local READ, ONE, MORE = 'i8i8i8i8i8I4c8I7I6BI7I7', '>Bc0i8i8i8i8i8I4c8I7I6BI7I7', '>Bc0i8i8i8i8i8I4c0c8I7I6BI7I7'
local LESS = '>Bc0i8i8i8i8i8I4c0c0'
local LEFT = '\4'

-- The states, by their place and 1: their values, those of the generation before, those that changed, those that are left,
-- and, unless all are of one, their limits and hashes.
local values, aged, changed, left, of, hash_of, places = nil, nil, {}, {}, {}, {}, 1
local groups, only, only_hash, count = {}, nil, nil, tonumber(argument())
for i = 1, count do
  local hash, numbers = load_group()
  local loaded, before, same = hash.loaded, hash.before, #numbers == 2
  groups[i], hash.places, hash.longest, hash.current, hash.older = hash, places, 0, {}, {}
  for j = 1, same and 1 or hash.size do
    local limit = limits[unpack_struct('>I2', numbers, 2 * j - 1)]
    limit.held = '>Bc' .. hash.kind.bytes .. READ
    hash.current[limit] = loaded and tag_of(loaded, limit.set) -- its tag as it was found
    hash.older[limit] = before and tag_of(before, limit.set)
    only = count == 1 and same and limit
    of[places + j] = limit
  end
  if i == 1 then
    values, aged, only_hash = hash.values, hash.aged or {}, only and hash
  end
  for j = 2, not only and hash.size + 1 or 0 do
    local at = places + j - 1
    of[at], hash_of[at] = of[same and places + 1 or at], hash
    values[at], aged[at] = hash.values[j], hash.aged and hash.aged[j]
  end
  places = places + hash.size
end
local buckets, buckets_changed = ids.fetch(), {}
local left_ids, news, scratch, pruned = {}, {}, {}, ids.pruned

-- The operation at hand: of each state its place and 1, its permits and how many are to be kept; its numbers, how many permits
-- are held of it and by how many holds, when the first of these expires, and where they stand in its value; and of a hold
-- that ends its permits, how many stay, its piece's place and end.
local place_of_limit, permits, keeps = {}, {}, {}
local as, bs, cs, held, live, firsts, lists = {}, {}, {}, {}, {}, {}, {}
local ns, kept, backs, pieces, behind = {}, {}, {}, {}, {}

-- load_state reads the state of limit i of the operation, and reports whether it can be decided here: nothing has expired, and
-- this limit wrote it. It returns the first piece that is held, too, and where the next would be.
local function load_state(i, place)
  local limit, hash, value = only or of[place], only_hash or hash_of[place], values[place]
  if left[place] then
    return false
  elseif not value then
    as[i], bs[i], cs[i], held[i], live[i], lists[i] = 0, 0, 0, 0, 0, nil
    return true
  end
  local set, tag = limit.set, nil
  if #value > LONGEST then
    local writer, debt, digest, expires, n, flags, from, to, behind
    tag, writer, as[i], bs[i], cs[i], debt, held[i], live[i], digest, expires, n, flags, from, to, behind =
      unpack_struct(limit.held, value)
    firsts[i], lists[i] = expires, behind - PIECE_BYTES
    return writer == set.text and debt == limit.debt and expires > now, digest, n, from, to, behind
  elseif #value ~= set.length then
    return false
  end
  tag, as[i], bs[i], cs[i] = unpack_struct(set.tagged, value)
  held[i], live[i], lists[i] = 0, 0, nil
  local tags, g = hash.current, hash.loaded
  if changed[place] then
    tags, g = hash.tags, hash.now
  elseif aged[place] then
    tags, g = hash.older, hash.before
  end
  as[i] = as[i] + g.start
  return tag == tags[limit]
end

-- as_bucket is a token bucket's state as its twin has it.
local function as_bucket(i)
  local state = scratch
  state.due, state.frac, state.last, state.held = as[i] + bs[i], cs[i], as[i], held[i] > 0 and held[i] or nil
  return state
end

-- frees returns the first expiry of a value's holds at which permits come back, of the window that begins at from.
local function frees(value, at, from)
  while at and at < #value do
    local _, expires, _, flags, piece = unpack_struct(PIECE, value, at)
    if flags % 2 == 0 and (not from or piece == from) then
      return expires
    end
    at = at + PIECE_BYTES
  end
end

-- any reports whether a piece of a value's holds is charged at its expiry, or is not.
local function any(i, charged)
  local value = values[place_of_limit[i]]
  for at = lists[i] and lists[i] + FLAGS - 1 or 1, lists[i] and #value or 0, PIECE_BYTES do
    if byte(value, at) % 2 == charged then
      return true
    end
  end
end

-- is_plain reports whether Go can tell when Remaining grows by the first expiry at which permits come back: not if an
-- expiry may change by how much the state drains, or if the first may be too little. charged says that of the hold at hand.
local function is_plain(i, limit, b, c, charged)
  local twin = limit.kind.twin
  if twin == sliding_window_counter then
    return charged and not any(i, 0)
  elseif keeps[i] > 0 then
    return false
  elseif twin == concurrency then
    return held[i] <= limit.capacity
  elseif twin == schedule then
    return not charged and b < limit.capacity_us and not any(i, 1)
  end
  return c <= limit.capacity
end

-- store writes a state, and answers what has become of it: Go works out from it what is left.
local function store(i, place, limit, value, matters, back, asked, first, last)
  local hash = only_hash or hash_of[place]
  if not hash.list then
    open(hash, limit)
  end
  values[place], changed[place] = value, true
  if matters > hash.longest then
    hash.longest = matters
  end
  if i == 1 then
    answer(pack('>BI6I7I7I7I6', ANSWERED, back, as[1], bs[1], cs[1], held[1]))
  else
    answer(pack('>I7I7I7I6', as[i], bs[i], cs[i], held[i]))
  end
  if asked or limit.kind.twin == concurrency then
    if asked and first > 0 and limit.kind.moves then
      first = frees(value, 46 + hash.kind.bytes, as[i]) or 0
    end
    answer(pack('>I7I7', first, last))
  end
end

-- remember writes a bucket of ids, which matters for so long.
local function remember(number, bucket, life)
  buckets[number], buckets_changed[number] = pruned(buckets[number], bucket), true
  if life > ids.life then
    ids.life = life
  end
end

-- reserve begins a hold: text is its record in hold_ids.lua from remembered on.
local function reserve(count, digest, ttl, remembered, text, number, asked)
  local bucket = buckets[number]
  if left_ids[digest] or bucket and string.find(bucket, digest, 5, true) then
    return false
  end
  for i = 1, count do
    local place, n, a, b, c = place_of_limit[i], permits[i], nil, nil, nil
    local limit = only or of[place]
    local twin, most = limit.kind.twin, limit.capacity - keeps[i]
    if n < 0 then
      n = -n
    end
    if not load_state(i, place) or live[i] >= ids.max or asked and not is_plain(i, limit, bs[i], cs[i], permits[i] < 0) then
      return false
    elseif twin == concurrency then
      a, b, c = held[i] + n <= most and now, 0, 0
    elseif twin ~= schedule then
      a, b, c = twin.take_stored(now, as[i], bs[i], cs[i], n, most, limit.length, limit.step)
    elseif held[i] == 0 then
      a, b, c = twin.step(limit, now, as[i], bs[i], cs[i], n, keeps[i])
    else
      local state = as_bucket(i)
      a = twin.fits(state, limit, now, n, keeps[i]) and state.next_last
      b, c = a and state.next_due - a, state.next_frac
    end
    if not a then
      return false
    end
    as[i], bs[i], cs[i], ns[i] = a, b, c, n
  end
  local expires = now + ttl
  for i = 1, count do
    local place, n, a, b, c, flags = place_of_limit[i], ns[i], as[i], bs[i], cs[i], 2
    local limit = only or of[place]
    local kind, from, to, matters = limit.kind, 0, 0, limit.span
    if kind.moves then
      from, to = a, kind.merges and 0 or a + (b > 0 and b or limit.length)
    elseif kind.twin == schedule and b >= matters then
      matters = b + 1
    end
    if permits[i] < 0 and kind.twin ~= concurrency then
      flags = 3
    end
    local value, at, writer, first, last = values[place], lists[i], limit.set.text, expires, expires
    held[i] = held[i] + n
    if not at then
      value = pack(ONE, HELD, writer, a, b, c, limit.debt, held[i], 1, digest, expires, n, flags, from, to)
    else
      first, last = firsts[i], last_expiry(value)
      if last <= expires then
        last = expires
        value = pack(MORE, HELD, writer, a, b, c, limit.debt, held[i], live[i] + 1, sub(value, at), digest,
          expires, n, flags, from, to)
      else
        first = min(first, expires)
        value = pack(HELD_VALUE, HELD, writer, a, b, c, limit.debt, held[i], live[i] + 1,
          insert(sub(value, at), expires, pack(PIECE, digest, expires, n, flags, from, to)))
      end
    end
    store(i, place, limit, value, matters + last - now, 0, asked, first, last)
  end
  local length = #text + 17
  if bucket then
    bucket = pack('>I4I2c8I7c0c0', unpack_struct('>I4', bucket) + length, length, digest, expires, text, sub(bucket, 5))
  else
    bucket = pack('>I4I2c8I7c0', length, length, digest, expires, text)
  end
  remember(number, bucket, expires + remembered - now)
  return true
end

-- finish ends a hold in time: claims and more_claims are the digest of its claims, and actual what is asked for.
local function finish(cancels, count, digest, claims, more_claims, actual, number, asked)
  local bucket = buckets[number]
  local at, is_live = find_id(bucket or NO_IDS, digest)
  if not is_live or left_ids[digest] then
    return false
  end
  local length, expires, remembered, its_claims, its_more, keeps_it, _, has, charged, amounts =
    unpack_struct('>I2xxxxxxxxI7I5I4I4BI2I6I6', bucket, at) -- LIVE, without strings, and AMOUNTS
  remembered = expires + remembered - now
  if its_claims ~= claims or its_more ~= more_claims or keeps_it ~= 0 or now >= expires or remembered >= ids.longest then
    return false
  end
  for i = 1, count do
    local place = place_of_limit[i]
    local limit, value = only or of[place], values[place]
    local fine, one, n, from, to, next_at = load_state(i, place)
    if i > 1 then
      has, charged, amounts = unpack_struct(AMOUNTS, bucket, amounts)
    end
    local twin = limit.kind.twin
    if charged > 0 or permits[i] > has or not fine or not one
      or asked and not is_plain(i, limit, bs[i], cs[i], twin == sliding_window_counter) then
      return false
    end
    local piece = lists[i]
    if one ~= digest then
      piece = place_of(value, digest, PIECE_BYTES, piece)
      if not piece then
        return false
      end
      local _
      n, _, from, to, next_at = unpack_struct('>I6BI7I7', value, piece + 15)
    end
    if n ~= has then
      return false
    end
    ns[i], pieces[i], behind[i], kept[i] = n, piece, next_at, cancels and 0 or permits[i] < 0 and n or permits[i]
    local back = n - kept[i]
    if twin == schedule then
      local ended = as_bucket(i)
      back = twin.end_hold(ended, limit, now, n, kept[i])
      as[i], bs[i], cs[i] = ended.last, ended.due - ended.last, ended.frac
    elseif not limit.kind.moves then
      back = n
    elseif twin == sliding_window_counter then
      as[i], bs[i], cs[i], back = twin.give_back_stored(limit, now, as[i], bs[i], cs[i], back, from)
    elseif back > 0 or now >= as[i] + limit.length then
      local kind, state = limit.kind, scratch
      kind.read(state, limit.set, as[i], bs[i], cs[i])
      back = twin.give_back(state, limit, now, back, from, to)
      twin.adopt(state, limit, now) -- a window that is empty now is over
      as[i], bs[i], cs[i] = kind.write(state, limit)
    end
    backs[i] = back
  end
  local least
  for i = 1, count do
    if permits[i] >= 0 and (cancels or permits[i] ~= ns[i]) and (not least or backs[i] < least) then
      least = backs[i]
    end
  end
  least = least or 0
  for i = 1, count do
    local place, n = place_of_limit[i], ns[i]
    local limit, hash, value, first, last = only or of[place], only_hash or hash_of[place], values[place], 0, 0
    local set, matters, a, b, c = limit.set, limit.span, as[i], bs[i], cs[i]
    if limit.kind.twin == schedule and b >= matters then
      matters = b + 1
    end
    held[i] = held[i] > n and held[i] - n or 0
    if live[i] == 1 then
      if not hash.list then
        open(hash, limit)
      end
      value = in_numbers(hash, limit, hash.tags[limit] or enter(hash, limit), a, b, c)
    else
      value = pack(LESS, HELD, set.text, a, b, c, limit.debt, held[i], live[i] - 1,
        sub(value, lists[i], pieces[i] - 1), sub(value, behind[i]))
      first, last = unpack_struct('>I7', value, lists[i] + 8), last_expiry(value)
      matters = matters + last - now
    end
    store(i, place, limit, value, matters, least, asked, first, last)
    if backs[i] > 0 and not news[place] then
      news[place] = true
      announce(ARGV[hash.first + place - hash.places - 1])
    end
  end
  local flags = cancels and CANCELLED or COMMITTED
  if at == 5 and #bucket == 4 + length then -- most often
    bucket = pack('>I4c8BI7I5I4i6', 0, digest, flags, now, remembered, actual, -least)
  else
    bucket = pack('>I4c0c0c8BI7I5I4i6', unpack_struct('>I4', bucket) - length, sub(bucket, 5, at - 1), sub(bucket, at + length),
      digest, flags, now, remembered, actual, -least)
  end
  remember(number, bucket, remembered)
  return true
end

local list, from = argument(), 1
while from <= #list do
  local verb, asked, count, number, digest, x, y, z, place
  verb, asked, count, number, digest, x, y, z, place, permits[1], keeps[1], from =
    unpack_struct('>BBI2I2c8I4I4I5I2i8I4', list, from)
  asked, verb, number, place_of_limit[1] = asked == 1, verbs[verb], number + 1, place + 1
  for i = 2, count do
    place, permits[i], keeps[i], from = unpack_struct('>I2i8I4', list, from)
    place_of_limit[i] = place + 1
  end
  local text, done
  if verb == 'reserve' then
    text, from = unpack_struct('>I2c0', list, from)
    done = reserve(count, digest, x * 2 ^ 32 + y, z, text, number, asked)
  else
    done = finish(verb == 'cancel', count, digest, x, y, z, number, asked)
  end
  if not done then
    answer(LEFT)
    left_ids[digest] = true
    for i = 1, count do
      left[place_of_limit[i]] = true
    end
  end
end

-- written lists the fields and values of a hash that have changed.
local function written(hash, of, is_changed, offset)
  local fields, n, names, first = {}, 0, hash.names, hash.first - 1
  for j = 1, hash.size do
    if is_changed[offset + j] then
      fields[n + 1], fields[n + 2] = names[first + j], of[offset + j]
      n = n + 2
    end
  end
  return fields
end

for _, hash in ipairs(groups) do
  local fields = written(hash, values, changed, hash.places)
  if fields[1] then
    hash.list = fields
    lives(hash, hash.longest)
    flush(hash)
  end
end
ids.save(written(ids.hash, buckets, buckets_changed, 1))
