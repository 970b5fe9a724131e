-- Reserve, Commit and Cancel: hold.go of memstore is the same in Go.

local MAX_PIECES = 16
local MAX_LISTED = 100

-- fresh is a hold of which nothing is known, as it is for a reserve, or for a commit by somebody who knows when it expired.
local function fresh(given, verb, count)
  local hold = {
    fresh = true, ended = verb == 'reserve' and 0 or EXPIRED, n = {}, kept = {}, reset = {}, drops = {},
    claims = given.claims, expires = given.expires, remembered = given.remembered, via = given.via,
  }
  for i = 1, count do
    hold.n[i], hold.kept[i] = 0, 0
  end
  return hold
end

-- known is what is known of an id. One that has expired has ended so, though it stands there as live.
local function known(given)
  local bucket = ids.buckets[given.bucket]
  local place, live = find_id(bucket, given.digest)
  if not place then
    return nil
  end
  local hold, _ = { ended = 0, reset = {}, via = 0 }, nil
  if live then
    local keep, count, from
    _, _, hold.expires, hold.remembered, hold.claims, keep, count, from = unpack_struct(LIVE, bucket, place)
    hold.n, hold.kept, hold.time, hold.keep, hold.dropped = {}, {}, hold.expires, keep % 2 == 1, keep >= 2
    hold.ended = now >= hold.expires and EXPIRED or 0
    for i = 1, count do
      hold.n[i], hold.kept[i], from = unpack_struct(AMOUNTS, bucket, from)
    end
    hold.id = sub(bucket, from, place + unpack_struct('>I2', bucket, place) - 1)
    local stop = string.find(hold.id, '\0', 1, true)
    hold.epoch = stop and unpack_struct('>I7', hold.id, stop + 1)
    hold.tags, hold.drops = stop and sub(hold.id, stop + 8) or '', {}
    for i = 1, hold.dropped and count or 0 do -- of an earlier version's it is not known which
      hold.drops[i] = (byte(hold.tags, 5 * i) or 128) >= 128
    end
  else
    local flags
    _, flags, hold.time, hold.remembered, hold.answer, hold.applied = unpack_struct(ENDED, bucket, place)
    hold.ended, hold.late, hold.was_reset, hold.via = flags % 4, flags % 8 >= 4, flags % 16 >= 8, floor(flags / 16)
    if hold.remembered == ids.longest then
      hold.remembered = (ids.far_end(bucket, given.digest) or hold.time + ids.longest) - hold.time
    end
  end
  if now > hold.time + hold.remembered then
    return nil
  end
  return hold
end

-- same_claims reports whether an operation is of the limits that a hold is of, and brings the hold into their order.
function holds.same_claims(given, hold)
  if hold.claims ~= given.claims then
    local mine, theirs = given.tags, hold.tags
    if theirs == '' or #mine ~= #theirs then
      return false
    end
    local n, kept, drops, used = {}, {}, {}, {}
    for i = 1, #mine / 5 do
      local j = 1
      while j <= #mine / 5 and (used[j] or sub(theirs, 5 * j - 4, 5 * j - 1) ~= sub(mine, 5 * i - 4, 5 * i - 1)
        or byte(theirs, 5 * j) % 128 ~= byte(mine, 5 * i)) do
        j = j + 1
      end
      if j > #mine / 5 then
        return false
      end
      n[i], kept[i], drops[i], used[j] = hold.n[j], hold.kept[j], hold.drops[j], true
    end
    hold.n, hold.kept, hold.drops, hold.claims = n, kept, drops, given.claims
  end
  hold.id = given.id
  return true
end

-- forget is the bucket of an id without what is known of it.
local function forget(given)
  local bucket = ids.buckets[given.bucket]
  for _, digest in ipairs({ given.digest, ids.far_digest(given.digest) }) do
    local place, live = find_id(bucket, digest)
    bucket = place and without(bucket, place, live) or bucket
  end
  return bucket
end

local function keep_live(given, hold)
  local amounts = ''
  for i = 1, #hold.n do
    amounts = amounts .. pack(AMOUNTS, hold.n[i], hold.kept[i])
  end
  local flags = (hold.keep and 1 or 0) + (hold.dropped and 2 or 0)
  local record = pack(
    LIVE, LIVE_BYTES + #amounts + #hold.id, given.digest, hold.expires, hold.remembered, hold.claims, flags, #hold.n
  ) .. amounts .. hold.id
  ids.replace(given.bucket, ids.with_live(forget(given), record), hold.expires + hold.remembered - now)
end

local function keep_end(given, verb, hold, applied)
  local flags = (verb == 'cancel' and CANCELLED or COMMITTED) + (hold.late and 4 or 0) + (hold.was_reset and 8 or 0) + hold.via * 16
  local remembered = max(now, hold.expires) + hold.remembered - now
  local record = pack(ENDED, given.digest, flags, now, min(remembered, ids.longest), given.answer, applied)
  if remembered >= ids.longest then
    record = record .. pack(ENDED, ids.far_digest(given.digest), flags, now + remembered, 0, given.answer, applied)
  end
  ids.replace(given.bucket, forget(given) .. record, remembered)
end

-- What follows is of package decide, too: an operation on a hold with groups of alternatives.

-- bind binds an operation on a hold to one way of each group that is still open: that of the first limit for which on says
-- that the hold is on it; else the way of number first of the first group, and of number rest of the others, PASSED for
-- none of them. Without such a number the group stays open. It returns the number of the first group's way, or 0.
local PASSED = -1

local function bind(ways, on, first, rest)
  local via, to = 0, 0
  while to < #ways do
    local from, group = to + 1, floor(ways[to + 1] / PER_GROUP)
    repeat
      to = to + 1
    until not is_in(group, ways[to + 1])
    if ways[from] ~= 0 and ways[from] ~= ASIDE then
      local number = rest
      if group == 1 then
        number = first
      end
      number = number == PASSED and ways[to] % MAX_WAYS + 1 or number -- which no limit has
      for i = on and to or 0, from, -1 do
        number = on(i) and ways[i] % MAX_WAYS or number
      end
      for i = from, number and to or 0 do
        ways[i] = ways[i] % MAX_WAYS == number and 0 or ASIDE
      end
      via = group == 1 and number or via
    end
  end
  return via
end

-- look asks a limit for n permits; for none, only what is left.
local function look(state, n, keep)
  if n > 0 then
    return holds.transition('peek', state, n, keep)
  end
  local out = holds.transition('settle', state, 0, keep)
  out.allowed, out.retry = true, 0
  return out
end

-- was_reset reports whether one of the last epochs of a state's policy is newer than the hold, and not newer than its expiry.
local function was_reset(state, hold)
  local policy = string.match(state.cur or state.key, '^[^}]*}:[^:]*:([^:]*)')
  policy = string.gsub(string.gsub(policy, '%%3A', ':'), '%%25', '%%')
  for _, past in ipairs(redis.call('HMGET', KEYS[1], '-all', '-:' .. policy)) do
    for epoch in string.gmatch(past or '', '%d+') do
      epoch = tonumber(epoch)
      if epoch > hold.epoch and epoch <= hold.expires then
        return true
      end
    end
  end
end

-- find_resets notes of which limits what was held has been reset before it expired: by a client's reset, or by an epoch of
-- the policy.
function holds.find_resets(parts, given, hold)
  for i = 1, #parts do
    local state = parts[i]
    if hold.n[i] > 0 and not hold.drops[i] and not part_of(state, given.digest)
      and not (state.expired and state.expired[given.digest]) then
      local epoch = tonumber(string.match(state.cur or state.key, '^[^}]*}:[^:]-%.(%d+):') or 0)
      hold.reset[i] = hold.ended ~= EXPIRED
        or hold.epoch and epoch > hold.epoch and (epoch <= hold.expires or was_reset(state, hold))
        or holds.was_dropped(state, given.digest, hold.expires)
    end
  end
end

-- kept_at_end is what is charged of a limit once the hold has expired: of what was reset before nothing.
local function kept_at_end(hold, i, state)
  if hold.reset[i] then
    return 0
  elseif hold.keep and state.twin ~= concurrency then
    return hold.kept[i] + hold.n[i]
  end
  return hold.kept[i]
end

-- What a reply says of an id's operation.
local REPLAYED, LOST, LATE, RESET, FULL, VIA = 1, 2, 4, 8, 16, 32

local function tell_hold(code, flags, time, applied)
  answer(pack('>BBi8i8', code, flags, time, applied))
end

-- take takes what a hold lacks of each limit, which was looked at, and puts every part where it expires now.
local function take(parts, permits, keeps, given, hold, lacks, outs, chosen)
  local ended, left, renewed = hold.ended, {}, {}
  local expires = now + given.ttl
  for i = 1, #parts do
    local state = parts[i]
    local charged = not chosen or chosen[i]
    -- What has expired of a way that the hold is not on any more is left to the version that wrote it.
    local expired = ended == EXPIRED and state.expired and state.expired[given.digest] and not holds.is_others(state)
    local others = (charged or expired) and holds.own(state)
    -- Of a state that several ways name, what is held is the chosen way's.
    local part = charged and part_of(state, given.digest)
    if ended == EXPIRED then
      hold.kept[i], hold.n[i] = kept_at_end(hold, i, state), 0
    elseif part then
      remove(state, part)
    elseif charged and hold.n[i] > 0 then -- it was reset
      hold.n[i], hold.kept[i] = 0, 0
      holds.forget_reset(state, given.digest)
    end
    part = part or { pieces = {} }
    left[i], renewed[i] = part, others and charged and lacks[i] == 0
    local n = charged and lacks[i] or 0
    if n > 0 then
      local out = #parts == 1 and outs[1] or holds.transition('take', state, n, keeps[i])
      outs[i] = out
      expires = max(expires, now + given.ttl + out.delay)
      hold_more(state, n)
      hold.n[i] = hold.n[i] + n
      local log, from, to = state.log, 0, 0
      if log then
        from = log.at
      elseif state.twin.give_back then
        from, to = state.start, state.limit.kind.merges and 0 or state.stop
      end
      local pieces = part.pieces
      local last = pieces[#pieces]
      if last and last.from == from and last.to == to then
        last.n = last.n + n
      else
        if #pieces == MAX_PIECES then
          pieces[1].n = pieces[1].n + pieces[2].n
          table.remove(pieces, 2)
        end
        pieces[#pieces + 1] = { n = n, from = from, to = to }
      end
    end
  end
  if ended == 0 and not hold.fresh then
    expires = max(expires, hold.expires)
  end
  hold.expires, hold.keep, hold.remembered = expires, given.keep == 1, given.remembered
  for i = 1, #parts do
    local state = parts[i]
    local part = left[i]
    if hold.n[i] > 0 then
      part.expires = expires
      part.charged = state.twin ~= concurrency and (hold.keep or permits[i] < 0 or state.limit.queue)
      add(state, given.digest, part)
    end
    if renewed[i] or hold.n[i] > 0 and state.twin == concurrency then
      outs[i] = look(state, 0, keeps[i])
    end
  end
  keep_live(given, hold)
  return expires
end

local function reserve(parts, permits, keeps, ways, given, hold)
  local ended, lacks, outs, flags, gone = hold.ended, {}, {}, 0, false
  if ways and not hold.fresh then
    bind(ways, function(i)
      return (ended == EXPIRED and kept_at_end(hold, i, parts[i]) or hold.n[i] + hold.kept[i]) > 0
    end)
  end
  local allowed, chosen = decide(#parts, ways, true, function(i)
    local state = parts[i]
    if ways and ways[i] == ASIDE then
      lacks[i], outs[i] = 0, look(state, 0, keeps[i])
      return nil
    end
    local lack = math.abs(permits[i])
    local part = not hold.fresh and ended == 0 and part_of(state, given.digest)
    if ended == EXPIRED then
      lack = lack - kept_at_end(hold, i, state)
    elseif hold.n[i] > 0 and not part then
      gone = true
    elseif not hold.fresh then
      lack = lack - hold.n[i] - hold.kept[i]
      state.asking = given.digest
    end
    lacks[i] = max(0, lack)
    local full = lacks[i] > 0 and not part and state.list and state.live >= ids.max
    -- Of one limit the first answer stands, as a take's.
    local out = #parts == 1 and lacks[i] > 0 and not full and holds.transition('take', state, lacks[i], keeps[i])
      or look(state, lacks[i], keeps[i])
    outs[i], state.asking = out, nil
    if full then
      flags, out.allowed, out.delay = FULL, false, 0
      if lacks[i] <= state.limit.capacity - keeps[i] then
        out.retry = holds.retry(state, lacks[i], keeps[i], NEVER) -- not before one has expired
      end
    end
    return out.allowed
  end)
  flags = ways and allowed and 0 or flags -- another way has room
  if not hold.fresh and ended == 0 and not gone then
    flags = flags + REPLAYED
  end
  flags = flags + (gone and RESET or 0)
  local expires = 0
  if allowed then
    expires = take(parts, permits, keeps, given, hold, lacks, outs, chosen)
    for i = 1, ways and #parts or 0 do
      if not chosen[i] then
        local left = look(parts[i], 0, keeps[i])
        outs[i].remaining, outs[i].reset = left.remaining, left.reset
      end
    end
  elseif ended == EXPIRED or gone then
    flags = flags + LOST
  end
  for i = 1, ways and #parts or 0 do
    outs[i].bound = ways[i] == 0
  end
  tell_hold(ANSWERED, flags, expires, 0)
  return outs
end

-- finish ends a hold, that is live or has expired, by a commit or a cancel. Of a limit with a cost of its own permits is
-- below 0: what was taken stays. What was dropped of it has expired.
local function finish(verb, parts, permits, ways, given, hold)
  local ended, late = hold.ended, hold.ended == EXPIRED
  local least, gone = nil, false
  if ways then
    hold.via = max(hold.via, bind(ways, function(i) return hold.n[i] + hold.kept[i] > 0 end, PASSED, PASSED))
  end
  for i = 1, #parts do
    local state = parts[i]
    if not ways or ways[i] ~= ASIDE then
      local limit = state.limit
      local n, kept = hold.n[i], hold.kept[i]
      local part = n > 0 and ended ~= EXPIRED and part_of(state, given.digest)
      local expired = not hold.reset[i] and (ended == EXPIRED or hold.drops[i] and n > 0 and not part)
      if expired then
        late, n, kept = true, 0, kept_at_end(hold, i, state)
      end
      local adjustable = permits[i] >= 0
      local keeps, charge, applied = n, 0, 0
      if verb == 'cancel' and not state.limit.queue then
        keeps = 0
      elseif adjustable then
        local cost = max(0, permits[i] - kept)
        keeps = min(cost, n)
        charge = cost - keeps
      end
      if part then
        holds.own(state)
        part = part_of(state, given.digest)
        remove(state, part)
        applied = -end_part(state, limit, now, part, keeps)
        if applied < 0 then
          announce(state.client)
        end
      elseif n > 0 then
        gone, charge = true, 0
      elseif expired and state.expired and state.expired[given.digest] then
        holds.own(state)
      end
      if charge > 0 then
        local out = holds.transition('settle', state, charge, 0)
        applied = applied + out.applied
        state.changed = state.changed or out.changed
      end
      if adjustable and (expired or verb == 'cancel' or permits[i] ~= n + kept)
        and (not least or math.abs(applied) < math.abs(least)) then
        least = applied
      end
    end
  end
  hold.late, hold.was_reset = late, gone
  least = least or 0
  keep_end(given, verb, hold, least)
  tell_hold(ANSWERED, (late and LATE or 0) + (gone and RESET or 0) + hold.via * VIA, now, least)
end

-- drop lets expire now what a hold has of these states, and reports whether it has anything. The hold is not to be renewed.
local function drop(parts, given, hold)
  local least
  for i = 1, #parts do
    local state = parts[i]
    if part_of(state, given.digest) then
      holds.own(state)
      local part = part_of(state, given.digest)
      remove(state, part)
      local back = end_part(state, state.limit, now, part, part.charged and part.n or 0)
      announce(state.client)
      if not least or back < least then
        least = back
      end
      for j = 1, hold and hold.ended == 0 and #hold.tags / 5 or 0 do
        if hold.n[j] > 0 and sub(hold.tags, 5 * j - 4, 5 * j - 1) == sub(given.tags, 5 * i - 4, 5 * i - 1)
          and byte(hold.tags, 5 * j) < 128 then
          local at = #hold.id - #hold.tags + 5 * j
          hold.id = sub(hold.id, 1, at - 1) .. string.char(byte(hold.id, at) + 128) .. sub(hold.id, at + 1)
        end
      end
    end
  end
  if least and hold and hold.ended == 0 then
    hold.dropped = true
    keep_live(given, hold)
  end
  tell_hold(least and ANSWERED or UNKNOWN, 0, now, -(least or 0))
  return least
end

-- decide carries out a Reserve, a Commit, a Cancel or a Drop. It returns what each limit says, or nil if the operation has
-- failed.
function holds.decide(verb, parts, permits, keeps, ways, number)
  local given, id = {}, nil
  local text = ARGV[ids.first + number - 1]
  given.digest, given.claims, given.answer, given.ttl, given.remembered, given.expires, given.keep, given.via, id =
    unpack_struct(GIVEN, text)
  given.id, given.bucket = sub(text, id), bucket_of(given.digest)
  given.tags = sub(given.id, string.find(given.id, '\0', 1, true) + 8)
  local hold = known(given)
  if not hold and (verb == 'reserve'
    or verb == 'commit' and given.expires > 0 and now <= given.expires + given.remembered) then
    hold = fresh(given, verb, #parts)
  end
  local ended = hold and hold.ended
  local over = ended == COMMITTED or ended == CANCELLED
  if verb == 'drop' then
    if not drop(parts, given, hold) then
      return nil
    end
  elseif not hold then
    tell_hold(UNKNOWN, 0, 0, 0)
    return nil
  elseif not over and not holds.same_claims(given, hold) then
    tell_hold(OTHER, 0, 0, 0)
    return nil
  elseif over and ended == (verb == 'cancel' and CANCELLED or COMMITTED) and verb ~= 'reserve'
    and hold.answer == given.answer then
    if ways then
      bind(ways, nil, hold.via)
    end
    tell_hold(ANSWERED, REPLAYED + (hold.late and LATE or 0) + (hold.was_reset and RESET or 0) + hold.via * VIA, now, hold.applied)
  elseif over or ended == EXPIRED and verb == 'cancel' then
    tell_hold(RESOLVED, ended, over and hold.time or hold.expires, 0)
    return nil
  elseif verb == 'reserve' and hold.dropped then
    tell_hold(RESOLVED, EXPIRED, min(now, hold.expires), 0)
    return nil
  else
    holds.find_resets(parts, given, hold)
    if verb == 'reserve' then
      return reserve(parts, permits, keeps, ways, given, hold)
    elseif ways and hold.fresh then
      bind(ways, nil, given.via, 0)
    end
    finish(verb, parts, permits, ways, given, hold)
  end
  local outs = {}
  for i = 1, #parts do
    local state = parts[i]
    outs[i] = look(state, 0, keeps[i])
    outs[i].bound = ways and ways[i] == 0
  end
  return outs
end

-- list tells of the holds of a state, the next to expire and no more than MAX_LISTED: how many, and of each when it
-- expires, its permits and its id.
function holds.list(state)
  local list, at, told = state.list or '', 1, {}
  while at <= #list and #told < MAX_LISTED do
    local part = read_part(list, at)
    local digest = sub(list, at, at + 7)
    local name, id = bucket_of(digest), ''
    local bucket = ids.buckets[name] or redis.call('HGET', ids.cur, name) or redis.call('HGET', ids.prev, name) or NO_IDS
    local place, live = find_id(bucket, digest)
    if live then
      local length, _, _, _, _, _, limits = unpack_struct(LIVE, bucket, place)
      id = string.match(sub(bucket, place + LIVE_BYTES + 12 * limits, place + length - 1), '^%Z*')
    end
    at = part.next
    told[#told + 1] = pack('>i8i8I2', part.expires, part.n, #id) .. id
  end
  answer(pack('>I4', #told) .. table.concat(told))
end

end
