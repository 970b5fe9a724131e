-- Drives a twin through a run of steps, as a store does: load a copy of what is
-- stored, adopt it for the limit at hand, apply, and store it if it changed. It
-- follows the twins in one chunk, so that it sees their locals.

local actions = { [0] = 'take', 'peek', 'deny', 'settle', 'admit' }

-- Each kind: load copies what is stored into the table of a state gone by, save makes
-- of a state what is to be stored, show gives the stored state in three numbers.
local kinds = {}

local function bucket(twin)
  return {
    twin = twin,
    load = function(s, state)
      state.due, state.frac, state.last = s.due, s.frac, s.last
      state.capacity, state.permits, state.period = s.capacity, s.permits, s.period
      return state
    end,
    save = function(s, limit)
      s.capacity, s.permits, s.period = limit.capacity, limit.permits, limit.period
      return s
    end,
    show = function(s) return s.due or 0, s.frac or 0, s.last or 0 end,
  }
end
kinds.TOKEN_BUCKET = bucket(schedule)
kinds.LEAKY_BUCKET = bucket(schedule)

kinds.FIXED_WINDOW = {
  twin = fixed_window,
  load = function(s, state)
    state.start, state.stop, state.count = s.start, s.stop, s.count
    return state
  end,
  save = function(s) return s end,
  show = function(s) return s.start or 0, s.stop or 0, s.count or 0 end,
}

kinds.SLIDING_WINDOW_COUNTER = {
  twin = sliding_window_counter,
  load = function(s, state)
    state.start, state.previous, state.current = s.start, s.previous, s.current
    state.window, state.elapsed = s.window, nil
    return state
  end,
  save = function(s, limit)
    s.window = limit.window
    return s
  end,
  show = function(s) return s.start or 0, s.previous or 0, s.current or 0 end,
}

-- A stored log: the records from first to last in two lists, and the head. Records
-- are dropped as soon as all their permits have left.
local function first_where(stored, holds)
  local low, high = stored.first, stored.last
  while low <= high do
    local middle = (low + high - (low + high) % 2) / 2
    if holds(middle) then
      high = middle - 1
    else
      low = middle + 1
    end
  end
  return low
end

local function load_log(stored)
  if not stored.total then
    return { total = 0, stored = 0, gone = 0, request = 0, before = function() return 0 end }
  end
  local at, total = stored.at, stored.totals
  return {
    at = at[stored.last], total = stored.total, stored = stored.total, gone = stored.gone,
    request = stored.request, capacity = stored.capacity, window = stored.window,
    interval = stored.interval, from = stored,
    before = function(t)
      local i = first_where(stored, function(i) return at[i] > t end) - 1
      return i >= stored.first and total[i] or 0
    end,
    reached = function(n)
      return at[first_where(stored, function(i) return total[i] >= n end)]
    end,
  }
end

local function save_log(log, limit)
  local stored = log.from or { at = {}, totals = {}, first = 1, last = 0 }
  if log.fresh then
    if stored.last < stored.first or stored.at[stored.last] ~= log.at then
      stored.last = stored.last + 1
    end
    stored.at[stored.last], stored.totals[stored.last] = log.at, log.total
  end
  while stored.first <= stored.last and stored.totals[stored.first] <= log.gone do
    stored.at[stored.first], stored.totals[stored.first] = nil, nil
    stored.first = stored.first + 1
  end
  stored.total, stored.gone, stored.request = log.total, log.gone, log.request
  stored.capacity, stored.window, stored.interval = limit.capacity, limit.window, limit.interval
  return stored
end

kinds.SLIDING_WINDOW_LOG = {
  twin = sliding_window_log, load = load_log, save = save_log,
  show = function(s)
    if not s.total then
      return 0, 0, 0
    end
    local held = s.total - s.gone
    return held, held > 0 and s.at[s.last] or 0, s.request
  end,
}

-- numbers are a state in three numbers, as it is stored; restore does the reverse.
local function numbers(state)
  if state.due then
    return state.last, state.due - state.last, state.frac
  elseif state.count then
    return state.start, state.stop - state.start, state.count
  end
  return state.start, state.previous, state.current
end

local function restore(state, limit, a, b, c)
  if state.due then
    state.last, state.due, state.frac = a, a + b, c
  elseif state.count then
    state.start, state.stop, state.count = a, a + (b > 0 and b or limit.length), c
  else
    state.start, state.previous, state.current = a, b, c
  end
end

-- admits carries out a step that takes n permits k times, one after another, in one
-- of the ways that scripts do. Its outcome is room, if that is the largest cost that
-- fits, how often n was admitted, and whether that changed the state.
local ways = 0
local function admits(twin, state, limit, now, n, keep, k, room)
  local right = (room == 0 or twin.fits(state, limit, now, room, keep)) and not twin.fits(state, limit, now, room + 1, keep)
  local admitted = 0
  ways = ways + 1
  if k <= 20 and ways % 4 < 2 and not limit.edges then
    local a, b, c = numbers(state)
    while a and admitted < k do
      if twin.step then
        a, b, c = twin.step(limit, now, a, b, c, n, keep)
      else
        a, b, c = twin.take_stored(now, a, b, c, n, limit.capacity - keep, limit.length or limit.window, limit.step)
      end
      if a then
        admitted = admitted + 1
        restore(state, limit, a, b, c)
      end
    end
  elseif ways % 2 == 0 or k > 20 then
    admitted = twin.admit(state, limit, now, n, keep, k)
  else
    for _ = 1, k do
      if twin.fits(state, limit, now, n, keep) then
        twin.commit(state)
        admitted = admitted + 1
      end
    end
  end
  return {
    allowed = admitted > 0, changed = admitted > 0, remaining = right and room or -1,
    retry = 0, reset = 0, delay = 0, applied = admitted,
  }
end

-- drive runs the steps, a flat list of limit, action, now, n, k, room and keep, and fills results,
-- ten numbers a step; the state's three are left out where it did not change. The
-- growth is asked for at every so many steps, as grows says. edges(i, t) gives the
-- calendar's edges around t to limit i. It returns the log's entries, a flat list of
-- time and permits.
local function drive(name, limits, steps, grows, results, edges)
  local kind = assert(kinds[name], 'there is no kind ' .. name)
  local twin, load, save, show = kind.twin, kind.load, kind.save, kind.show
  local adopt, apply = twin.adopt, twin.apply
  local stored, spare = {}, {}
  local at = 0
  for _, limit in ipairs(limits) do
    if twin.prepare then
      twin.prepare(limit)
    end
  end
  for i = 1, #steps, 7 do
    local which, action, now, n, keep = steps[i], actions[steps[i + 1]], steps[i + 2], steps[i + 3], steps[i + 6]
    local limit = limits[which]
    local state = load(stored, spare)
    if adopt(state, limit, now) == false then
      edges(which, max(now, state.start or 0))
      assert(adopt(state, limit, now), 'the edges around the time asked for do not hold it')
    end
    local out
    if action == 'admit' then
      out = admits(twin, state, limit, now, n, keep, steps[i + 4], steps[i + 5])
    else
      out = apply(action, state, limit, now, n, keep)
    end
    results[at + 1] = (out.allowed and 1 or 0) + (out.changed and 2 or 0)
    results[at + 2], results[at + 3], results[at + 4] = out.remaining, out.retry, out.reset
    results[at + 5], results[at + 6] = out.delay, out.applied
    if i % (7 * grows) == 1 then
      results[at + 7] = growth(twin, state, limit, now, keep)
    end
    if out.changed then
      spare = stored
      stored = save(state, limit)
      results[at + 8], results[at + 9], results[at + 10] = show(stored)
    end
    at = at + 10
  end
  local entries = {}
  if stored.totals then
    local total = stored.gone
    for i = stored.first, stored.last do
      entries[#entries + 1] = stored.at[i]
      entries[#entries + 1] = stored.totals[i] - total
      total = stored.totals[i]
    end
  end
  return entries
end

local function whole(n)
  if n == floor(n) and n > -EXACT and n < EXACT then
    return n
  end
  error('left the exact integers: ' .. n)
end

-- guard makes the twins check their arithmetic: whatever passes through a helper is
-- an integer below 2^53, and muldiv's operands keep to their ranges. check is called
-- with the operands and results of every eighth muldiv.
local function guard(check)
  local plain, plain_max, plain_min = muldiv, max, min
  local calls = 0
  muldiv = function(a, b, c)
    assert(whole(a) >= 0 and whole(b) >= 0 and b < 2 ^ 35 and whole(c) > 0 and c < 2 ^ 45, 'muldiv: out of range')
    local quotient, remainder = plain(a, b, c)
    calls = calls + 1
    if calls % 8 == 0 then
      check(a, b, c, whole(quotient), whole(remainder))
    end
    return quotient, remainder
  end
  max = function(a, b) return plain_max(whole(a), whole(b)) end
  min = function(a, b) return whole(plain_min(a, whole(b))) end -- a cost may be anything
  local function checked(f)
    return function(...)
      local a, b, c = f(...)
      if type(a) == 'number' then
        return whole(a), b and whole(b), c and whole(c)
      end
      return a
    end
  end
  for name, f in pairs(schedule) do
    if name ~= 'apply' and name ~= 'adopt' then
      schedule[name] = checked(f)
      for _, kind in pairs(kinds) do
        if kind.twin[name] == f then
          kind.twin[name] = schedule[name]
        end
      end
    end
  end
  for _, kind in pairs(kinds) do
    local admit = kind.twin.admit
    if admit and admit ~= schedule.admit then
      kind.twin.admit = checked(admit)
    end
  end
end

return drive, muldiv, guard
