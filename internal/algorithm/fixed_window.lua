-- Fixed window, the twin of fixed_window.go.
--
-- state: start, stop (microseconds), count; nil start is untouched; own_start and
--        own_stop, the limit's own window, are set by adopt
-- limit: capacity, debt, length (microseconds; 0 with a calendar), step (windows
--        start at multiples of it), edges (with a calendar: four ascending instants,
--        the bounds of three windows), count_denied of one that counts denials, which a take leaves as it is

local fixed_window = {}

-- window returns the bounds of the window that holds t, or nil when the calendar's
-- edges at hand don't reach it.
function fixed_window.window(limit, t)
  if limit.length > 0 then
    local start = t - t % limit.step
    return start, start + limit.length
  end
  for i = 1, 3 do
    if limit.edges[i] <= t and t < limit.edges[i + 1] then
      return limit.edges[i], limit.edges[i + 1]
    end
  end
  return nil
end

-- adopt readies a loaded state: it brings it to now. A window under way with permits
-- counted goes on to its own end, whichever limit wrote it. Otherwise the limit's own
-- window starts empty. It returns false when other edges are needed.
function fixed_window.adopt(state, limit, now)
  local t = max(now, state.start or 0)
  local start, stop = fixed_window.window(limit, t)
  if not start then
    return false
  end
  state.own_start, state.own_stop = start, stop
  if not state.start or state.count == 0 or t >= state.stop then
    state.start, state.stop, state.count = start, stop, 0
  end
  return true
end

-- add counts n permits more. The first one's window is the limit's own.
local function add(state, n)
  if n > 0 and state.count == 0 then
    state.start, state.stop = state.own_start, state.own_stop
  end
  state.count = state.count + n
end

-- apply carries out an action (take, peek, deny, settle) of n permits at now, so that keep more are left.
function fixed_window.apply(action, state, limit, now, n, keep)
  local out = { allowed = true, retry = 0, delay = 0, applied = 0, changed = false }
  if action == 'settle' then
    if n > 0 then
      out.applied = clamp(n, limit.capacity + limit.debt - state.count)
    else
      out.applied = -clamp(-n, state.count)
    end
    add(state, out.applied)
    out.changed = out.applied ~= 0
  elseif n > limit.capacity - keep then
    out.allowed, out.retry = false, NEVER
  elseif state.count + n > limit.capacity - keep then
    out.allowed, out.retry = false, state.stop - now
  elseif action == (limit.count_denied and 'deny' or 'take') then
    add(state, n)
    out.changed = true
    if action == 'deny' and state.count + n > limit.capacity then -- what it says of waits is of what comes now
      out.retry = state.stop - now
    end
  end
  out.remaining = max(0, limit.capacity - keep - state.count)
  out.reset = state.count > 0 and state.stop - now or 0
  return out
end

-- fits reports whether n permits would be admitted now; commit, which may follow it
-- and nothing else, takes them.
function fixed_window.fits(state, limit, _, n, keep)
  state.taken = n
  return state.count + n <= limit.capacity - keep
end

function fixed_window.commit(state)
  add(state, state.taken)
end

-- take_stored brings a state in three numbers, as it is stored, to now, and takes n permits, if they fit in the
-- capacity, less what is to be kept: the window's start, its length, or 0 for the limit's own, and the count; three
-- zeros of one that is not found. It returns what becomes of them, or nothing.
function fixed_window.take_stored(now, start, kept, count, n, capacity, length, step)
  local t = start > now and start or now
  if count == 0 or t >= start + (kept > 0 and kept or length) then
    start, kept, count = t - t % step, 0, 0
  end
  if count + n <= capacity then
    return start, kept, count + n
  end
end

-- admit takes n permits k times, one after another, as often as they fit, and
-- returns how often.
function fixed_window.admit(state, limit, _, n, keep, k)
  local admitted = max(0, min(k, floor((limit.capacity - keep - state.count) / n)))
  add(state, admitted * n)
  return admitted
end

-- refund_taken gives back n permits that were taken at an instant, if its window is still
-- the state's, and returns whether that changed the state.
function fixed_window.refund_taken(state, _, _, n, taken)
  if taken < state.start or taken >= state.stop or state.count == 0 then
    return false
  end
  state.count = max(0, state.count - n)
  return true
end

-- give_back gives back n permits of a hold's piece, if its window still counts at an instant, and
-- returns how many.
function fixed_window.give_back(state, _, at, n, from, to)
  if not state.start or at >= state.stop or state.start ~= from or state.stop ~= to then
    return 0
  end
  n = min(n, state.count)
  state.count = state.count - n
  return n
end

-- used is how many permits are counted.
function fixed_window.used(state)
  return state.count
end

-- leaves is how long after now at most so many permits are counted.
function fixed_window.leaves(state, _, now, most)
  return state.count > most and state.stop - now or 0
end
