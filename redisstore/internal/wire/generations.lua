-- The states of the fixed-size algorithms: many clients in one hash, in two
-- generations.
--
-- A partition of a limit has two hashes, cur and prev; a client's field is its key.
-- A state is read from cur, else from prev, and written to cur. A write at or after
-- the time when cur is to turn drops prev and makes cur the new prev; nothing else
-- does. By then every state of prev is worthless, so nothing that matters is lost and
-- no client is ever looked for to be removed.
--
-- In a cluster, whose settings have a tag, the first generation has an empty one before it, with an empty head: a node
-- that moves a slot carries out a call only if all of its keys are there, and sends it to the other only if none is.
--
-- The field '' is a generation's head: start (8 bytes), life (8), turn (8) and dead
-- (8), signed, in microseconds, then the parameters of the limits that wrote in it.
--   start  times of states count from it
--   life   the longest that a state written in it matters, with the margin
--   turn   from when on a write turns the generation, so all its states are
--          worthless at turn + life
--   dead   when those of the generation before are worthless
-- Parameters, of a fixed length for each algorithm, are the widths in bytes of a
-- state's three numbers (1 each) and then what reading a state takes: a bucket's
-- capacity (4), permits (4) and period (6); a fixed window's length (6), 0 with a
-- calendar; a sliding window counter's window (6).
--
-- A state is a tag (1 byte) and three numbers of those widths, the first signed:
-- a bucket's last - start, due - last, frac; a fixed window's window start - start,
-- length (0 for the writer's own) and count; a sliding window counter's window
-- start - start, previous and current. The tag is the number of the writer's
-- parameters in the head, from 0, or 63 when they follow the tag; 128 is added when
-- each number takes 8 bytes, since one of them does not fit its width.

local byte, sub = string.byte, string.sub
local pack, unpack_struct = struct.pack, struct.unpack

local HEAD = '>i8i8i8i8'
local WIDE_TAGGED, WIDE_BODY = '>Bi8i8i8', '>i8i8i8'

-- Each kind of limit has its twin;
-- describe, which makes a limit of the description's numbers; and, unless it is a
-- log: the format of its parameters behind the widths, and their length with the
-- widths; whether a state moves with time and is adopted whoever wrote it, others
-- are when another limit did; whether a window of another length merges the counts that it
-- takes over into one; read, which makes a state of what is stored; and
-- write, which returns a state's time, its two other numbers and how long it matters.
local kinds = {}

if schedule then
  kinds.t = {
    twin = schedule, format = '>BBBI4I4I6', bytes = 17, moves = false,
    describe = function(limit, a, b, queue)
      limit.permits, limit.period, limit.queue = a, b, queue == 1
      schedule.prepare(limit)
    end,
    blank = function(state) state.due = nil end,
    read = function(state, set, a, b, c)
      state.due, state.frac, state.last = a + b, c, a
      state.capacity, state.permits, state.period = set[1], set[2], set[3]
    end,
    write = function(state)
      local us = state.due - state.last
      return state.last, us, state.frac, us + 1
    end,
  }
end

if fixed_window then
  local function window(describe)
    return {
      twin = fixed_window, format = '>BBBI6', bytes = 9, moves = true, describe = describe,
      blank = function(state) state.start = nil end,
      read = function(state, set, a, b, c)
        state.start, state.stop, state.count = a, a + (b > 0 and b or set[1]), c
      end,
      -- A longer window of another limit, which goes on, is over when the generation turns:
      -- the one that it was written in turns, or is dead, only after its end.
      write = function(state, limit)
        local length = state.stop - state.start
        return state.start, length == limit.length and 0 or length, state.count, limit.span
      end,
    }
  end
  kinds.f = window(function(limit, a, b) limit.length, limit.step = a, b end)
  kinds.d = window(function(limit, a, b) limit.length, limit.step, limit.count_denied = a, b, true end)
  kinds.c = window(function(limit, a, b, c, d) limit.length, limit.edges = 0, { a, b, c, d } end)
end

if sliding_window_counter then
  kinds.s = {
    twin = sliding_window_counter, format = '>BBBI6', bytes = 9, moves = true, merges = true,
    describe = function(limit, a) limit.window, limit.length = a, a end,
    blank = function(state) state.start, state.window = nil, nil end,
    read = function(state, set, a, b, c)
      state.start, state.previous, state.current, state.window = a, b, c, set[1]
    end,
    write = function(state, limit) return state.start, state.previous, state.current, 2 * limit.window end,
  }
end

-- parameters reads a writer's parameters; what it returns is kept by their text.
local known = {}
local function parameters(kind, text)
  local set = known[text]
  if not set then
    local wa, wb, wc, x, y, z = unpack_struct(kind.format, text)
    local body = 'i' .. wa .. 'I' .. wb .. 'I' .. wc
    set = {
      x, y, z, text = text, body = '>' .. body, tagged = '>B' .. body, length = 1 + wa + wb + wc,
      most_a = 256 ^ wa / 2, most_b = 256 ^ wb, most_c = 256 ^ wc,
    }
    known[text] = set
  end
  return set
end

-- generation reads a head, or returns nil for none, and for that of an empty generation.
local function generation(kind, head)
  if not head or head == '' then
    return nil
  end
  local g = { text = head, sets = {}, count = 0 }
  g.start, g.life, g.turn, g.dead = unpack_struct(HEAD, head)
  for i = 0, (#head - HEAD_BYTES) / kind.bytes - 1 do
    local from = HEAD_BYTES + i * kind.bytes + 1
    g.sets[i] = parameters(kind, sub(head, from, from + kind.bytes - 1))
    g.count = i + 1
  end
  return g
end

-- head writes a generation's head.
local function head(g)
  local text = { pack(HEAD, g.start, g.life, g.turn, g.dead) }
  for i = 0, g.count - 1 do
    text[i + 2] = g.sets[i].text
  end
  return table.concat(text)
end

-- fetch reads the values of clients, whose keys are names[first] to names[last]: of the
-- hash it returns, values[i + 1] is client i's and aged[i + 1] says that it is of
-- prev. loaded and before are the generations as they were read, now is the one to
-- write to.
local function fetch(kind, cur, prev, names, first, last)
  local hash = { kind = kind, cur = cur, prev = prev, names = names, first = first }
  local values, aged = redis.call('HMGET', cur, '', unpack(names, first, last)), nil
  local count = last - first + 1
  local missing = false
  for i = 2, count + 1 do
    if not values[i] then
      missing = true
      break
    end
  end
  hash.now = generation(kind, values[1])
  hash.loaded = hash.now
  if missing and not (hash.now and now >= hash.now.dead) then
    local older = redis.call('HMGET', prev, '', unpack(names, first, last))
    hash.before = generation(kind, older[1])
    if hash.before then
      aged = {}
      for i = 2, count + 1 do
        if not values[i] and older[i] then
          values[i], aged[i] = older[i], true
        end
      end
    end
  end
  hash.values, hash.aged = values, aged
  return hash
end

-- open makes ready to write: it turns or starts a generation when it is time to.
local function open(hash, limit)
  local g = hash.now
  hash.list, hash.count, hash.tags = {}, 0, {}
  if g and now < g.turn then
    return
  end
  local dead = 0
  if g then
    -- A full server refuses this first write, and so the turn. It would take the next two, and after them all others.
    redis.call('HSET', hash.cur, '', hash.values[1])
    redis.call('UNLINK', hash.prev)
    redis.call('RENAME', hash.cur, hash.prev)
    dead = g.turn + g.life
  elseif hash.before then
    dead = hash.before.turn + hash.before.life
  end
  hash.now = { start = now, life = limit.life, turn = max(now + limit.life, dead), dead = dead, sets = {}, count = 0 }
  hash.renewed = true
end

-- tag_of is the tag of a set of parameters in a generation, or nil.
local function tag_of(g, set)
  for tag = 0, g.count - 1 do
    if g.sets[tag] == set then
      return tag
    end
  end
end

-- enter makes sure that the head knows the limit, and returns the tag of its states.
local function enter(hash, limit)
  local g = hash.now
  if limit.life > g.life then
    g.life, hash.renewed = limit.life, true
  end
  local tag = tag_of(g, limit.set)
  if not tag and g.count < INLINE then
    tag = g.count
    g.sets[tag], g.count, hash.renewed = limit.set, tag + 1, true
  end
  hash.tags[limit] = tag or INLINE
  return hash.tags[limit]
end

-- read_state makes a client's state of what fetch read. It returns the parameters of the
-- limit that wrote it, or nil for an untouched one.
local function read_state(hash, i, state)
  local value, kind = hash.values[i + 1], hash.kind
  if not value then
    kind.blank(state)
    return nil
  end
  local g = hash.aged and hash.aged[i + 1] and hash.before or hash.loaded
  local tag, at, body = byte(value), 2, nil
  local set = g.sets[tag]
  if not set then
    if tag >= WIDE then
      tag, body = tag - WIDE, WIDE_BODY
    end
    set = g.sets[tag]
    if tag == INLINE then
      set = parameters(kind, sub(value, 2, 1 + kind.bytes))
      at = 2 + kind.bytes
    end
  end
  local a, b, c = unpack_struct(body or set.body, value, at)
  kind.read(state, set, g.start + a, b, c)
  return set
end

-- in_numbers is a state in numbers, the first an instant, with a tag.
local function in_numbers(hash, limit, tag, a, b, c)
  local set, value = limit.set, nil
  a = a - hash.now.start
  if a < set.most_a and a >= -set.most_a and b < set.most_b and c < set.most_c then
    value = pack(set.tagged, tag, a, b, c)
  else
    value = pack(WIDE_TAGGED, tag + WIDE, a, b, c)
  end
  if tag == INLINE then
    value = sub(value, 1, 1) .. set.text .. sub(value, 2)
  end
  return value
end

-- write_numbers writes a client's state in numbers.
local function write_numbers(hash, limit, field, a, b, c)
  if not hash.list then
    open(hash, limit)
  end
  local list, n = hash.list, hash.count
  list[n + 1], list[n + 2] = field, in_numbers(hash, limit, hash.tags[limit] or enter(hash, limit), a, b, c)
  hash.count = n + 2
end

-- lives lets a generation that is written to live for as long as a state of it matters, and the margin.
local function lives(hash, matters)
  local life = matters + margin(matters)
  if life > hash.now.life then
    hash.now.life, hash.renewed = life, true
  end
end

-- merged reports whether a state that is about to be written was taken over from a window of another
-- length, so that its counts can't be told apart any more.
local function merged(kind, state, limit)
  return kind.merges and state.window and state.window ~= limit.window
end

-- mark_merged notes that nothing comes back to a client's state of what was taken before now: as after a
-- reset, for longer than anything is given back.
local function mark_merged(hash, client)
  redis.call('SET', sub(hash.cur, 1, -4) .. 'reset.' .. client, string.format('%.0f', now - 1), 'PX', milliseconds(20000000))
end

-- write_state writes a client's state under a limit, to be sent by flush. What a
-- changed limit took over may matter for longer than what it starts; then so does the
-- generation.
local function write_state(hash, limit, field, state)
  if merged(hash.kind, state, limit) then
    mark_merged(hash, field)
  end
  local a, b, c, matters = hash.kind.write(state, limit)
  write_numbers(hash, limit, field, a, b, c)
  if matters > limit.span then
    lives(hash, matters)
  end
end

-- flush sends what was written.
local function flush(hash)
  local list = hash.list
  if not list then
    return
  end
  if hash.renewed then
    list[#list + 1] = ''
    list[#list + 1] = head(hash.now)
  end
  redis.call('HSET', hash.cur, unpack(list))
  if hash.renewed then
    local life = hash.now.life
    local left = milliseconds(hash.now.turn + life + margin(life) - now)
    redis.call('PEXPIRE', hash.cur, left)
    if not hash.loaded and not hash.before and string.find(KEYS[1], '{', 1, true) then
      redis.call('HSET', hash.prev, '', '')
      redis.call('PEXPIRE', hash.prev, left)
    end
  end
end
