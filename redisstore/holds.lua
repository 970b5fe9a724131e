-- Holds: what reservations take of states until they end (hold.go of memstore is the same in Go). A script with
-- this part answers every operation itself.
--
-- A state of which permits are held has, beside what its twin makes of it:
--   held   how many permits
--   live   how many holds
--   list   the pieces of the holds, one behind another, in the order in which they expire: the hold's
--          digest (8 bytes), when it expires (7), permits (6), 1 if an expiry charges them, and 2 for the
--          first of a hold (1), and where the permits come back to, from and to (7 each): a fixed window's
--          start and end, the start of a counter's, or the time of a log's entry
-- Its value is HELD, its writer's parameters, its three numbers, the writer's debt, held (8 bytes each),
-- live (4) and list; a log's list has a key of its own, as live (4) and list.
--
-- What is known of ids stands in a hash in two generations, beside the settings. A live hold's field is
-- its digest; its value: expires, remembered, claims (8 each), 1 if it is kept when it expires (1), the number of
-- limits (2), what it holds of each, and what an expiry has charged (6 each), and the id. Ends are in buckets,
-- 65,536 fields of 3 bytes: digest (8), 1 committed or 2 cancelled and 4 if late (1), the time (7), how long it is
-- remembered (5), what was asked for (4), and what was applied (6).

holds = {}

local PIECE, PIECE_BYTES = '>c8I7I6BI7I7', 36
local LIVE, LIVE_AMOUNTS = '>i8i8c8BI2', 28
local ENDED, ENDED_BYTES = '>c8BI7I5c4i6', 31
local COMMITTED, CANCELLED, EXPIRED = 1, 2, 3
local MAX_PIECES, MAX_WALK = 16, 100
local FOREVER = math.huge

-- read_part reads the pieces of the hold that is at a place of a list.
local function read_part(list, at)
  local digest, expires, n, flags, from, to, next_at = unpack_struct(PIECE, list, at)
  local _
  local part = {
    at = at, next = next_at, n = n, expires = expires, charged = flags % 2 == 1,
    pieces = { { n = n, from = from, to = to } },
  }
  while sub(list, part.next, part.next + 7) == digest do
    _, _, n, _, from, to, part.next = unpack_struct(PIECE, list, part.next)
    part.n = part.n + n
    part.pieces[#part.pieces + 1] = { n = n, from = from, to = to }
  end
  return part
end

-- place finds where something of so many bytes that begins with a digest is among others.
local function place(list, digest, bytes)
  local at = 0
  repeat
    at = string.find(list, digest, at + 1, true)
  until not at or at % bytes == 1
  return at
end

local function part_of(state, digest)
  local at = state.list and place(state.list, digest, PIECE_BYTES)
  return at and read_part(state.list, at)
end

-- add puts a part where it expires.
local function add(state, digest, part)
  local records, flags = '', part.charged and 3 or 2
  for _, piece in ipairs(part.pieces) do
    records = records .. pack(PIECE, digest, part.expires, piece.n, flags, piece.from, piece.to)
    flags = flags % 2
  end
  state.live = (state.live or 0) + 1
  local list = state.list
  if not list then
    state.list = records
    return
  end
  local low, high = 0, #list / PIECE_BYTES -- so many pieces at least and at most expire before
  local middle = max(0, high - 1)          -- most often all
  while low < high do
    if unpack_struct('>I7', list, middle * PIECE_BYTES + 9) <= part.expires then
      low = middle + 1
    else
      high = middle
    end
    middle = floor((low + high) / 2)
  end
  low = low * PIECE_BYTES
  state.list = sub(list, 1, low) .. records .. sub(list, low + 1)
end

local function remove(state, part)
  local list = sub(state.list, 1, part.at - 1) .. sub(state.list, part.next)
  state.list, state.live = list ~= '' and list or nil, state.live - 1
end

-- hold_more counts permits as held. What is held of a leaky bucket changes nothing there.
local function hold_more(state, n)
  if state.twin ~= leaky_bucket then
    local held = (state.held or 0) + n
    state.held = held > 0 and held or nil
  end
end

-- end_part takes a part out of a state at an instant, by the parameters of a limit: so many permits stay
-- charged. It returns how many came back.
local function end_part(state, limit, at, part, kept)
  local twin, back = state.twin, 0
  if twin.end_hold then
    back = twin.end_hold(state, limit, at, part.n, kept)
  elseif twin == concurrency then
    back = part.n
  elseif twin.give_back then
    local n = part.n - kept
    for i = #part.pieces, 1, -1 do
      local piece = part.pieces[i]
      local some = min(piece.n, n)
      if some == 0 then
        break
      end
      n = n - some
      back = back + twin.give_back(state.log or state, limit, at, some, piece.from, piece.to)
    end
  end
  hold_more(state, -part.n)
  return back
end

-- start makes a loaded state that has a list ready: what is due expires, each hold at its instant.
local function start(state)
  local list, from = state.list, 1
  while from <= #list and unpack_struct('>I7', list, from + 8) <= now do
    local part = read_part(list, from)
    end_part(state, state.log or state, part.expires, part, part.charged and part.n or 0)
    state.expired = state.expired or {}
    state.expired[sub(list, from, from + 7)] = true
    from, state.live = part.next, state.live - 1
  end
  list = sub(list, from)
  if state.window and state.window ~= state.limit.window then
    -- Their counts can't be told from others' any more: nothing comes back to a window of time 0.
    list = string.gsub(list, string.rep('.', PIECE_BYTES), function(piece)
      return sub(piece, 1, 22) .. string.rep('\0', 14)
    end)
  end
  state.list = list ~= '' and list or nil
end

-- read makes a client's state of what fetch read, as read_state does.
function holds.read(hash, i, state)
  local value = hash.values[i + 1]
  if not value or byte(value) ~= HELD then
    return read_state(hash, i, state)
  end
  local kind = hash.kind
  local set = parameters(kind, sub(value, 2, 1 + kind.bytes))
  local a, b, c, debt, held, count, at = unpack_struct('>i8i8i8i8i8I4', value, 2 + kind.bytes)
  kind.read(state, set, a, b, c)
  state.debt, state.live, state.list = debt, count, sub(value, at)
  hold_more(state, held)
  start(state)
  return set
end

-- write writes a client's state, as write_state does.
function holds.write(hash, state)
  local limit, kind = state.limit, hash.kind
  if not state.list then
    write_state(hash, limit, state.client, state)
    return
  elseif not hash.list then
    open(hash, limit)
  end
  if merged(kind, state, limit) then
    mark_merged(hash, state.client)
  end
  local a, b, c, matters = kind.write(state, limit)
  local n = hash.count + 2
  hash.count, hash.list[n - 1] = n, state.client
  hash.list[n] = pack('>B', HELD) .. limit.set.text
    .. pack('>i8i8i8i8i8I4', a, b, c, limit.debt, state.held or 0, state.live) .. state.list
  local life = max(matters, limit.span) + unpack_struct('>I7', state.list, #state.list - 27) - now
  life = life + margin(life)
  if life > hash.now.life then
    hash.now.life, hash.renewed = life, true
  end
end

-- read_log and write_log do so for a log, whose list has the key that follows its own.
function holds.read_log(state, key)
  state.held_key = key
  local list = state.log.held and redis.call('GET', key)
  if list then
    state.live, state.list = unpack_struct('>I4', list), sub(list, 5)
    for at = 1, #state.list, PIECE_BYTES do
      hold_more(state, unpack_struct('>I6', state.list, at + 15))
    end
    start(state)
  end
end

function holds.write_log(state)
  local list = state.list
  state.log.held = list ~= nil
  if list then
    state.left = max(state.left, unpack_struct('>I7', list, #list - 27) - now)
    redis.call('SET', state.held_key, pack('>I4', state.live) .. list, 'PX', expiry(state.left))
  else
    redis.call('UNLINK', state.held_key)
  end
end

local function copy(of)
  local new = {}
  for name, value in pairs(of) do
    new[name] = value
  end
  return new
end

-- wait is how long until n permits would be admitted if nobody took, renewed or ended anything: own is how
-- long if nothing expired either. Of very many expiries the bound is that of the last one looked at.
local function wait(state, n, own)
  local then_state = copy(state)
  if state.log then
    then_state.log = copy(state.log)
  end
  local limit, twin, list, from = state.limit, state.twin, state.list, 1
  local ready, looked = own == NEVER and FOREVER or now + own, 0
  while from <= #list do
    local part = read_part(list, from)
    local at = part.expires
    if ready <= at then
      break
    end
    end_part(then_state, limit, at, part, part.charged and part.n or 0)
    if limit.kind.moves then
      then_state.window = limit.window
      twin.adopt(then_state, limit, at)
    end
    local out = twin.apply('peek', then_state.log or then_state, limit, at, n)
    ready = out.retry == NEVER and FOREVER or at + out.retry
    if out.allowed then
      break
    end
    from, looked = part.next, looked + 1
    if looked == MAX_WALK and twin ~= concurrency then
      ready = min(ready, at)
      break
    end
  end
  return ready - now
end

-- transition is what the state's twin says to an action, which takes into account that what is held expires.
function holds.transition(action, state, n)
  local limit = state.limit
  local out = state.twin.apply(action, state.log or state, limit, now, n)
  local list = state.list
  if list then
    if not out.allowed and n <= limit.capacity then
      out.retry = wait(state, n, out.retry)
    end
    if state.twin == concurrency then
      out.reset = unpack_struct('>I7', list, #list - 27) - now
    end
  end
  return out
end

-- grows is how long until Remaining grows.
function holds.grows(state)
  local grows = state.twin.grows(state.log or state, state.limit, now)
  if grows == NEVER then
    return unpack_struct('>I7', state.list, 9) - now
  end
  return grows
end

-- The ids that operations of this batch name, what is known of them, and what is to be written.
local ids = { kind = { bytes = 1 }, given = {}, live = {}, ends = {}, gone = {} }

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
        -- A bucket that moves on leaves behind what is forgotten.
        ends = string.gsub(ends, string.rep('.', ENDED_BYTES), function(ended)
          local _, _, time, remembered = unpack_struct(ENDED, ended)
          return time + remembered < now and '' or nil
        end)
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

-- list tells of the holds of a state: how many, and of each when it expires, its permits and its id.
function holds.list(state)
  local list, at, count = state.list or '', 1, 0
  local told = {}
  while at <= #list do
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

-- look asks a limit for n permits; for none, only what is left.
local function look(state, n)
  if n > 0 then
    return holds.transition('peek', state, n)
  end
  local out = holds.transition('settle', state, 0)
  out.allowed, out.retry = true, 0
  return out
end

-- kept_at_end is what is charged of a limit once the hold has expired.
local function kept_at_end(hold, i, state)
  if hold.keep and state.twin ~= concurrency then
    return hold.kept[i] + hold.n[i]
  end
  return hold.kept[i]
end

-- What a reply says of an id's operation.
local ANSWERED, RESOLVED, UNKNOWN, OTHER = 0, 1, 2, 3
local REPLAYED, LOST, LATE, RESET, FULL = 1, 2, 4, 8, 16

local function tell_hold(code, flags, time, applied)
  answer(pack('>BBi8i8', code, flags, time, applied))
end

-- take takes what a hold lacks of each limit, which was looked at, and puts every part where it expires now.
local function take(parts, permits, given, hold, ended, lacks, outs)
  local fresh = {}
  local expires = now + given.ttl
  for i = 1, #parts do
    local state = parts[i]
    state.changed = true
    local part = part_of(state, given.digest)
    if ended == EXPIRED then
      hold.kept[i], hold.n[i] = kept_at_end(hold, i, state), 0
    elseif part then
      remove(state, part)
    else
      hold.n[i] = 0
    end
    part = part or { pieces = {} }
    fresh[i] = part
    local n = lacks[i]
    if n > 0 then
      local out = #parts == 1 and outs[1] or holds.transition('take', state, n)
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
  if ended == 0 then
    expires = max(expires, hold.expires)
  end
  hold.expires, hold.time, hold.keep, hold.remembered = expires, expires, given.keep == 1, given.remembered
  for i = 1, #parts do
    local state = parts[i]
    local part = fresh[i]
    if hold.n[i] > 0 then
      part.expires = expires
      part.charged = state.twin ~= concurrency and (hold.keep or permits[i] < 0 or state.twin == leaky_bucket)
      add(state, given.digest, part)
      if state.twin == concurrency then
        outs[i] = look(state, 0)
      end
    end
  end
  keep_live(given, hold)
  return expires
end

local function reserve(parts, permits, given, hold, ended)
  local lacks, outs, flags = {}, {}, 0
  local allowed, gone = true, false
  for i = 1, #parts do
    local state = parts[i]
    local lack = math.abs(permits[i])
    local part = hold and ended == 0 and part_of(state, given.digest)
    if ended == EXPIRED then
      lack = lack - kept_at_end(hold, i, state)
    elseif hold and hold.n[i] > 0 and not part then
      gone = true
    elseif hold then
      lack = lack - hold.n[i] - hold.kept[i]
    end
    lacks[i] = max(0, lack)
    local full = lacks[i] > 0 and not part and state.list and state.live >= ids.max
    -- Of one limit the first answer stands, as a take's.
    local out = #parts == 1 and lacks[i] > 0 and not full and holds.transition('take', state, lacks[i])
      or look(state, lacks[i])
    outs[i] = out
    if full then
      flags, out.allowed = FULL, false
      if out.retry ~= NEVER then
        out.retry = max(out.retry, unpack_struct('>I7', state.list, 9) - now)
      end
    end
    allowed = allowed and out.allowed
  end
  if hold and ended == 0 and not gone then
    flags = flags + REPLAYED
  end
  flags = flags + (gone and RESET or 0)
  local expires = 0
  if allowed then
    hold = hold or {
      ended = 0, n = {}, kept = {}, claims = given.claims, id = given.id, expires = 0, time = 0, remembered = 0,
      keep = false, changed = true,
    }
    for i = 1, #parts do
      hold.n[i], hold.kept[i] = hold.n[i] or 0, hold.kept[i] or 0
    end
    expires = take(parts, permits, given, hold, ended, lacks, outs)
  elseif hold and (ended == EXPIRED or gone) then
    flags = flags + LOST
  end
  tell_hold(ANSWERED, flags, expires, 0)
  return outs
end

-- finish ends a hold, that is live or has expired, by a commit or a cancel. Of a limit with a cost of its own permits is
-- below 0: what was taken stays.
local function finish(verb, parts, permits, given, hold, ended)
  local late = ended == EXPIRED
  local least, gone = nil, false
  for i = 1, #parts do
    local state = parts[i]
    local limit = state.limit
    local n, kept = hold.n[i] or 0, hold.kept[i] or 0
    if late then
      n, kept = 0, hold.n[i] and kept_at_end(hold, i, state) or 0
    end
    local adjustable = permits[i] >= 0
    local keeps, charge, applied = n, 0, 0
    if verb == 'cancel' and state.twin ~= leaky_bucket then
      keeps = 0
    elseif adjustable then
      local cost = max(0, permits[i] - kept)
      keeps = min(cost, n)
      charge = cost - keeps
    end
    local part = n > 0 and part_of(state, given.digest)
    if part then
      remove(state, part)
      applied = -end_part(state, limit, now, part, keeps)
      state.changed = true
      if applied < 0 then
        announce(state.client)
      end
    elseif n > 0 then
      gone, charge = true, 0
    elseif late and state.expired and state.expired[given.digest] then
      state.changed = true
    end
    if charge > 0 then
      local out = holds.transition('settle', state, charge)
      applied = applied + out.applied
      state.changed = state.changed or out.changed
    end
    if adjustable and (late or verb == 'cancel' or permits[i] ~= n + kept)
      and (not least or math.abs(applied) < math.abs(least)) then
      least = applied
    end
  end
  hold.late = late
  least = least or 0
  keep_end(given, verb, hold, least)
  tell_hold(ANSWERED, (late and LATE or 0) + (gone and RESET or 0), now, least)
end

-- decide carries out a Reserve, a Commit or a Cancel. It returns what each limit says, or nil if the operation has failed.
function holds.decide(verb, parts, permits, number)
  local given = ids.given[number]
  local hold = known(given)
  local outs
  if not hold then
    if verb == 'reserve' then
      return reserve(parts, permits, given, nil, 0)
    elseif verb == 'cancel' or given.expires == 0 or now > given.expires + given.remembered then
      tell_hold(UNKNOWN, 0, 0, 0)
      return nil
    end
    finish(verb, parts, permits, given, { n = {}, kept = {}, remembered = given.remembered }, EXPIRED)
  else
    local ended = hold.ended
    if ended == 0 and now >= hold.expires then
      ended = EXPIRED
    end
    local over = ended == COMMITTED or ended == CANCELLED
    if not over and hold.claims ~= given.claims then
      tell_hold(OTHER, 0, 0, 0)
      return nil
    elseif over and ended == (verb == 'cancel' and CANCELLED or COMMITTED) and verb ~= 'reserve'
      and hold.answer == given.answer then
      tell_hold(ANSWERED, REPLAYED + (hold.late and LATE or 0), now, hold.applied)
    elseif over or (ended == EXPIRED and verb == 'cancel') then
      tell_hold(RESOLVED, ended, over and hold.time or hold.expires, 0)
      return nil
    elseif verb == 'reserve' then
      return reserve(parts, permits, given, hold, ended)
    else
      finish(verb, parts, permits, given, hold, ended)
    end
  end
  outs = {}
  for i = 1, #parts do
    local state = parts[i]
    outs[i] = look(state, 0)
  end
  return outs
end
