-- The first part, when all of its operations reserve, commit or cancel, and none touches a log, a calendar or a leaky bucket.
-- It carries out what most of them are: a reserve of an id that is not known, when all limits admit it, and a
-- commit or a cancel in time that charges nothing beyond the hold. It leaves the others to first_part.lua, and with them
-- what follows on their ids and states: of such a batch the client asks again.
--
-- The arguments are those of batch.lua, but an operation is
--   >B verb, >B growth, >I2 states, >I2 number of its id, >c8 digest of its id
--   >i8 TTL, >I5 how long it is remembered      of a reserve
--   >c8 digest of the claims, >I5 what is asked of a commit and a cancel
--   >I2i8I4 for each state                      as in batch.lua
--   >I2 length and record                       of a reserve, from remembered on as hold_ids.lua has it

load_ids()

local left_ids, LEFT = {}, pack('>BBi8i8', 4, 0, 0, 0)

-- The operation at hand: the places of its states, its permits of each, what becomes of each state in three numbers, and
-- how many permits a hold that ends has and keeps, and its piece in the list.
local at_place, permits, keeps = {}, {}, {}
local next_a, next_b, next_c = {}, {}, {}
local ns, kept, froms, tos, pieces, behind = {}, {}, {}, {}, {}, {}
local bucket_state = {}

-- as_bucket is a token bucket's state as its twin has it.
local function as_bucket(p)
  local state = bucket_state
  state.due, state.frac, state.last, state.held = as[p] + bs[p], cs[p], as[p], held[p]
  return state
end

-- fits reports whether all limits admit their permits of a new hold, and notes what becomes of them.
local function fits(count)
  for i = 1, count do
    local p = at_place[i]
    local limit, n, keep = of[p], permits[i], keeps[i]
    n = n < 0 and -n or n
    local twin = limit.kind.twin
    if left[p] or lists[p] and live[p] >= ids.max or n > limit.capacity - keep then
      return false
    elseif twin == concurrency then
      if (held[p] or 0) + n > limit.capacity - keep then
        return false
      end
      next_a[i], next_b[i], next_c[i] = now, 0, 0
    elseif twin == token_bucket then
      local state = as_bucket(p)
      if not twin.fits(state, limit, now, n, keep) then
        return false
      end
      next_a[i], next_b[i], next_c[i] = state.next_last, state.next_due - state.next_last, state.next_frac
    else
      next_a[i], next_b[i], next_c[i] = twin.step(limit, now, as[p], bs[p], cs[p], n, keep)
      if not next_a[i] then
        return false
      end
    end
  end
  return true
end

-- frees returns the first expiry of a list, from a place on, at which permits come back, of the window that begins at from.
local function frees(list, at, from)
  while list and at <= #list do
    local _, expires, _, flags, piece = unpack_struct(PIECE, list, at)
    if flags % 2 == 0 and (not from or piece == from) then
      return expires
    end
    at = at + PIECE_BYTES
  end
end

-- has reports whether a piece of a list is charged at its expiry, or is not.
local function has(list, charged)
  for at = FLAGS, list and #list or 0, PIECE_BYTES do
    if byte(list, at) % 2 == charged then
      return true
    end
  end
end

-- is_plain reports whether Go can tell when Remaining grows by the first expiry at which permits come back: not if an
-- expiry may change by how much the state drains, or if the first may be too little. charged says that of the hold at hand.
local function is_plain(i, charged)
  local p, limit = at_place[i], of[at_place[i]]
  local twin = limit.kind.twin
  if twin == sliding_window_counter then
    return charged and not has(lists[p], 0)
  elseif keeps[i] > 0 then
    return false
  elseif twin == concurrency then
    return (held[p] or 0) <= limit.capacity
  elseif twin == token_bucket then
    return not charged and bs[p] < limit.capacity_us and not has(lists[p], 1)
  end
  return cs[p] <= limit.capacity
end

-- tell answers with what has become of the states: Go works out from it what is left.
local TOLD, TOLD_MORE = '>BBi8i8i8i8i8i8i8i8', '>i8i8i8i8i8i8'
local function tell(count, time, applied, asked)
  for i = 1, count do
    local p = at_place[i]
    local list, first, last = lists[p], 0, 0
    if list then
      first, last = firsts[p], lasts[p]
      if asked and of[p].kind.moves then
        first = frees(list, 1, as[p]) or 0
      end
    end
    if i == 1 then
      answer(pack(TOLD, ANSWERED, 0, time, applied, as[p], bs[p], cs[p], held[p] or 0, first, last))
    else
      answer(pack(TOLD_MORE, as[p], bs[p], cs[p], held[p] or 0, first, last))
    end
  end
end

-- Strings are most of what an operation costs, so that each is made at once, of all that it consists of.

-- reserve begins a hold: text is its record in hold_ids.lua from remembered on.
local function reserve(count, digest, ttl, remembered, text, name, asked)
  local bucket = ids.buckets[name]
  if string.find(bucket, digest, 5, true) or left_ids[digest] or not fits(count) then
    return false
  end
  for i = 1, asked and count or 0 do
    if not is_plain(i, permits[i] < 0) then
      return false
    end
  end
  local expires = now + ttl
  for i = 1, count do
    local p, n = at_place[i], permits[i]
    local limit, flags = of[p], 2
    local kind, from, to = limit.kind, 0, 0
    local a, b = next_a[i], next_b[i]
    if kind.moves then
      from, to = a, kind.merges and 0 or a + (b > 0 and b or limit.length)
    end
    if n < 0 then
      n = -n
      flags = kind.twin == concurrency and 2 or 3
    end
    local list, piece = lists[p], pack(PIECE, digest, expires, n, flags, from, to)
    if not list or expires < firsts[p] then
      firsts[p] = expires
    end
    if not list or expires > lasts[p] then
      lasts[p] = expires
    end
    lists[p] = list and insert(list, expires, piece) or piece
    as[p], bs[p], cs[p], held[p], live[p], changed[p] = a, b, next_c[i], (held[p] or 0) + n, (live[p] or 0) + 1, true
  end
  local length = #text + 17
  bucket = pack('>I4I2c8I7c0c0', unpack_struct('>I4', bucket) + length, length, digest, expires, text, sub(bucket, 5))
  keep_bucket(name, bucket, expires + remembered - now)
  tell(count, expires, 0, asked)
  return true
end

-- finds reports whether a hold is there as it was reserved and lives, and notes its pieces and what it keeps.
local function finds(cancels, count, digest, from, bucket)
  for i = 1, count do
    local p, charged = at_place[i], nil
    ns[i], charged, from = unpack_struct(AMOUNTS, bucket, from)
    local piece = not left[p] and lists[p] and place_of(lists[p], digest, PIECE_BYTES)
    if not piece or charged > 0 or permits[i] > ns[i] then
      return false
    end
    local n, _
    n, _, froms[i], tos[i], behind[i] = unpack_struct('>I6BI7I7', lists[p], piece + 15)
    if n ~= ns[i] then
      return false
    end
    pieces[i] = piece
    kept[i] = cancels and 0 or permits[i] < 0 and n or permits[i]
  end
  return true
end

-- finish ends a hold in time: claims and more_claims are the digest of its claims, and actual what is asked for.
local function finish(cancels, count, digest, claims, more_claims, actual, name, state, asked)
  local bucket = ids.buckets[name]
  local place, is_live = find_id(bucket, digest)
  if not is_live or left_ids[digest] then
    return false
  end
  local length, expires, remembered, its_claims, its_more, keep, _, amounts =
    unpack_struct('>I2xxxxxxxxI7I5I4I4BI2', bucket, place) -- LIVE, without strings
  if its_claims ~= claims or its_more ~= more_claims or keep ~= 0 or now >= expires or expires + remembered - now >= ids.longest
    or not finds(cancels, count, digest, amounts, bucket) then
    return false
  end
  for i = 1, asked and count or 0 do
    if not is_plain(i, of[at_place[i]].kind.twin == sliding_window_counter) then
      return false
    end
  end
  local least
  for i = 1, count do
    local p, n = at_place[i], ns[i]
    local kind, back, list = of[p].kind, n - kept[i], lists[p]
    if #list == PIECE_BYTES then
      lists[p] = nil
    else
      lists[p] = sub(list, 1, pieces[i] - 1) .. sub(list, behind[i])
      firsts[p], lasts[p] = holds.expiries(lists[p])
    end
    if kind.twin == token_bucket then
      local ended = as_bucket(p)
      back = kind.twin.end_hold(ended, of[p], now, n, kept[i])
      as[p], bs[p], cs[p] = ended.last, ended.due - ended.last, ended.frac
    elseif not kind.moves then
      back = n
    elseif back > 0 then
      kind.read(state, of[p].set, as[p], bs[p], cs[p])
      back = kind.twin.give_back(state, of[p], now, back, froms[i], tos[i])
      kind.twin.adopt(state, of[p], now) -- a window that is empty now is over
      as[p], bs[p], cs[p] = kind.write(state, of[p])
    end
    held[p], live[p], changed[p] = held[p] > n and held[p] - n or nil, live[p] - 1, true
    if back > 0 then
      news[p] = 1
    end
    if permits[i] >= 0 and (cancels or permits[i] ~= n) and (not least or back < least) then
      least = back
    end
  end
  least = -(least or 0)
  remembered = expires + remembered - now
  bucket = pack(
    '>I4c0c0c8BI7I5I4i6', unpack_struct('>I4', bucket) - length, sub(bucket, 5, place - 1), sub(bucket, place + length), digest,
    cancels and CANCELLED or COMMITTED, now, remembered, actual, least
  )
  keep_bucket(name, bucket, remembered)
  tell(count, now, least, asked)
  return true
end

local list, from, scratch = argument(), 1, {}
while from <= #list do
  local verb, asked, count, number, digest, x, y, z
  verb, asked, count, number, digest, x, y, z, at_place[1], permits[1], keeps[1], from =
    unpack_struct('>BBI2I2c8I4I4I5I2i8I4', list, from)
  asked = asked == 1
  verb = verbs[verb]
  for i = 2, count do
    at_place[i], permits[i], keeps[i], from = unpack_struct('>I2i8I4', list, from)
  end
  local name, text, done = ARGV[ids.names + number], nil, nil
  if verb == 'reserve' then
    text, from = unpack_struct('>I2c0', list, from)
    done = reserve(count, digest, x * 2 ^ 32 + y, z, text, name, asked)
  else
    done = finish(verb == 'cancel', count, digest, x, y, z, name, scratch, asked)
  end
  if not done then
    answer(LEFT)
    left_ids[digest] = true
    for i = 1, count do
      left[at_place[i]] = true
    end
  end
end

save_ids()
