-- Holds: what reservations take of states until they end (hold.go of memstore is the same in Go). A script with
-- this part answers every operation itself. States are tables, with what hold_lists.lua says.

do -- a block, since a script has 200 names at most; it ends with hold_verbs.lua

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

local function part_of(state, digest)
  local at = state.list and place_of(state.list, digest, PIECE_BYTES)
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
  state.list = insert(state.list, part.expires, records)
end

local function remove(state, part)
  local list = sub(state.list, 1, part.at - 1) .. sub(state.list, part.next)
  state.list, state.live = list ~= '' and list or nil, state.live - 1
end

-- is_queue reports whether a state, or a run of one, is a leaky bucket's. What is held changes nothing there.
local function is_queue(state) return (state.limit or state).queue end

-- hold_more counts permits as held.
local function hold_more(state, n)
  if not is_queue(state) then
    local held = (state.held or 0) + n
    state.held = held > 0 and held or nil
  end
end

-- end_part takes a part out of a state at an instant, by the parameters of a limit: so many permits stay
-- charged. It returns how many came back.
local function end_part(state, limit, at, part, kept)
  if is_queue(state) then
    return 0
  end
  local twin, back = state.twin, 0
  if twin.end_hold then
    back = twin.end_hold(state, limit, at, part.n, kept)
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

-- Of what a reset drops is noted, for as long as ids are remembered, which holds had it, and when they would have
-- expired: after that nothing else tells a hold that was reset from one that has expired.
do
local DROPPED, DROPPED_BYTES, REMEMBERED = '>c8I7', 15, 7200000000

-- dropped_key is the key of a client's notes, whichever epoch of the policy they are of. The epoch stands behind the
-- first brace; a client may be named like one.
local function dropped_key(state)
  local key = state.log and string.gsub(state.held_key, '}:held%.', '}:dropped.', 1)
    or sub(state.cur, 1, -4) .. 'dropped.' .. state.client
  return (string.gsub(key, '^([^}]*}:[^:]-)%.%d+:', '%1:'))
end

-- note_reset notes what is held of a state that is reset now.
function holds.note_reset(state)
  local key, latest = dropped_key(state), last_expiry(state.list)
  local known = string.gsub(redis.call('GET', key) or '', string.rep('.', DROPPED_BYTES), function(hold)
    local _, expires = unpack_struct(DROPPED, hold)
    latest = max(latest, expires)
    return expires + REMEMBERED < now and '' or nil
  end)
  local list = string.gsub(state.list, string.rep('.', PIECE_BYTES), function(piece) return sub(piece, 1, DROPPED_BYTES) end)
  redis.call('SET', key, known .. list, 'PX', expiry(latest + REMEMBERED - now))
end

-- was_dropped reports whether a reset has dropped a hold's part of a state, and forget_reset forgets that it has.
function holds.was_dropped(state, digest, expires)
  local known = redis.call('GET', dropped_key(state))
  return known and place_of(known, pack(DROPPED, digest, expires), DROPPED_BYTES) ~= nil
end

function holds.forget_reset(state, digest)
  local key = dropped_key(state)
  local known = redis.call('GET', key)
  local at = known and place_of(known, digest, DROPPED_BYTES)
  while at do
    redis.call('SETRANGE', key, at - 1, string.rep('\0', DROPPED_BYTES))
    known = sub(known, 1, at - 1) .. string.rep('\0', DROPPED_BYTES) .. sub(known, at + DROPPED_BYTES)
    at = place_of(known, digest, DROPPED_BYTES)
  end
end

end

-- start makes a loaded state that has a list ready: what is due expires, each hold at its instant.
local function start(state)
  local list, from = state.list, 1
  state.written = { start = state.start, current = state.current } -- before an expiry brings a counter to its instant
  while from <= #list and unpack_struct('>I7', list, from + 8) <= now do
    local part = read_part(list, from)
    end_part(state, state.log or state, part.expires, part, part.charged and part.n or 0)
    state.expired = state.expired or {}
    state.expired[sub(list, from, from + 7)] = true
    from, state.live = part.next, state.live - 1
  end
  list = sub(list, from)
  local log, left, others = state.log, nil, nil
  if log and log.window then
    -- What has left under the limit that wrote the log, or the one that writes it now, has left for good, also when the
    -- clock is set back.
    left = max(now, log.at or 0, log.request) - min(log.window, state.limit.window)
    others = log.window ~= state.limit.window or log.interval ~= state.limit.interval
  elseif state.window and state.window ~= state.limit.window then
    left, others = FOREVER, true -- their counts can't be told from others' any more
  end
  state.list = list ~= '' and list or nil
  if left and state.list then -- nothing comes back to a window of time 0
    list = string.gsub(list, string.rep('.', PIECE_BYTES), function(piece)
      return unpack_struct('>I7', piece, 23) <= left and sub(piece, 1, FLAGS) .. string.rep('\0', 14) or nil
    end)
    state[others and 'own_list' or 'list'] = list
  end
end

-- read makes a client's state of what fetch read, as read_state does.
function holds.read(hash, i, state)
  local value = hash.values[i + 1]
  state.cur = hash.cur
  if not value or byte(value) ~= HELD then
    return read_state(hash, i, state)
  end
  local kind = hash.kind
  local a, b, c, debt, held, live, from = unpack_struct(HELD_NUMBERS, value, 2 + kind.bytes)
  local set = parameters(kind, sub(value, 2, 1 + kind.bytes))
  kind.read(state, set, a, b, c)
  state.debt, state.held, state.live, state.list = debt, held > 0 and held or nil, live, sub(value, from)
  start(state)
  return set
end

-- write writes a client's state, as write_state does.
function holds.write(hash, state)
  local limit, kind = state.limit, hash.kind
  if not state.list then
    write_state(hash, limit, state.client, state)
    return
  end
  if merged(kind, state, limit) then
    mark_merged(hash, state.client)
  end
  if not hash.list then
    open(hash, limit)
  end
  local a, b, c, matters = kind.write(state, limit)
  local n = hash.count + 2
  hash.count, hash.list[n - 1] = n, state.client
  hash.list[n] = pack(HELD_VALUE, HELD, limit.set.text, a, b, c, limit.debt, state.held or 0, state.live, state.list)
  lives(hash, max(matters, limit.span) + last_expiry(state.list) - now)
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
    state.left = max(state.left, last_expiry(list) - now)
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

-- copy_of is a state to look ahead with. Of a log that another version wrote it has, as writer, what that one has.
local function copy_of(state)
  local new = copy(state)
  if state.runs then
    new.runs = { carried = copy(state.runs.carried), taken = copy(state.runs.taken), from = state.runs.from }
    new.runs.carried.twin = state.twin
  end
  local log = state.log
  if log then
    new.log = copy(log)
    if log.reader then
      new.writer = { twin = state.twin, log = copy(log) }
      new.writer.log.gone, new.writer.log.request, new.writer.log.floor = log.held_gone, log.held_request, nil
    end
  end
  return new
end

-- expire lets a part expire at an instant, as the limit that wrote the state carries it on.
local function expire(state, limit, at, part)
  local kept, twin, runs, writer = part.charged and part.n or 0, state.twin, state.runs, state.writer
  if runs then
    end_part(runs.carried, runs.carried, at, part, kept)
    if twin.renew then
      twin.renew(runs, limit)
    end
    hold_more(state, -part.n)
    twin.read(state, limit, at)
  elseif writer then
    end_part(writer, writer.log, at, part, kept)
    state.log = copy(writer.log)
    twin.adopt(state.log, limit, at)
  else
    end_part(state, limit, at, part, kept)
    if limit.kind.moves then
      state.window = limit.window
      twin.adopt(state, limit, at)
    end
  end
end

-- is_others reports whether another version of the limit wrote a state.
function holds.is_others(state)
  return state.runs or state.log and state.log.reader
end

-- own notes that an operation writes a state, which is the limit's own then, whoever wrote it before. It reports whether
-- another version did.
function holds.own(state)
  local log = state.log
  if holds.is_others(state) then
    state.of_others = true
  end
  state.changed, state.runs = true, nil
  state.list, state.own_list = state.own_list or state.list, nil
  if log then
    log.reader = nil
  end
  return state.of_others
end

-- wait is how long something takes, such as until n permits would be admitted, if nobody took, renewed or ended anything:
-- own is how long if nothing expired either, and after how long after an instant, of the state then.
local function wait(state, own, after, asking)
  local then_state = copy_of(state)
  local limit, twin, list, from = state.limit, state.twin, state.list, 1
  local ready = own == NEVER and FOREVER or now + own
  while from <= #list do
    local part = read_part(list, from)
    local at = part.expires
    if ready < at then
      break
    end
    if sub(list, from, from + 7) ~= asking then -- a hold that asks for more is there all the while
      expire(then_state, limit, at, part)
      local more = after(then_state, at)
      ready = more == NEVER and FOREVER or at + more
      if more == 0 then
        break
      end
    end
    from = part.next
  end
  return ready == FOREVER and NEVER or ready - now
end

-- retry is how long until n permits would be admitted, and keep left: own is how long if nothing expired.
function holds.retry(state, n, keep, own)
  return wait(state, own, function(s, at)
    return s.twin.apply('peek', s.log or s, s.limit, at, n, keep).retry
  end, state.asking)
end

-- transition is what the state's twin says to an action, which takes into account that what is held expires.
function holds.transition(action, state, n, keep)
  local limit = state.limit
  local out = state.twin.apply(action, state.log or state, limit, now, n, keep)
  if out.changed then
    holds.own(state)
  end
  local list = state.list
  if list then
    if (not out.allowed or out.retry ~= 0) and n <= limit.capacity - keep then
      out.retry = holds.retry(state, n, keep, out.retry)
    end
    if state.twin == concurrency then
      out.reset = last_expiry(list) - now
    end
  end
  return out
end

-- grows is how long until Remaining grows.
function holds.grows(state, keep)
  local twin, limit = state.twin, state.limit
  local own, most = growth(twin, state.log or state, limit, now, keep)
  if own == 0 or not state.list then
    return own
  end
  return wait(state, own, function(s, at)
    return (growth(twin, s.log or s, limit, at, keep, most))
  end)
end
