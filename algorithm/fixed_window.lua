-- Fixed window, the twin of fixed_window.go.
--
-- state: start, stop (microseconds), count; nil start is untouched
-- limit: capacity, debt, length (microseconds; 0 with a calendar), edges (with a
--        calendar: four ascending instants, the bounds of three windows)

local fixed_window = {}

-- window returns the bounds of the window that holds t, or nil when the calendar's
-- edges at hand don't reach it.
function fixed_window.window(limit, t)
  if limit.length > 0 then
    local start = t - t % limit.length
    return start, start + limit.length
  end
  for i = 1, 3 do
    if limit.edges[i] <= t and t < limit.edges[i + 1] then
      return limit.edges[i], limit.edges[i + 1]
    end
  end
  return nil
end

-- adopt readies a loaded state: it brings it to the window of its time. It returns
-- false when other edges are needed.
function fixed_window.adopt(state, limit, now)
  local start, stop = fixed_window.window(limit, max(now, state.start or 0))
  if not start then
    return false
  end
  if state.start ~= start or state.stop ~= stop then
    state.start, state.stop, state.count = start, stop, 0
  end
  return true
end

-- apply carries out an action (take, peek, deny, settle) of n permits at now.
function fixed_window.apply(action, state, limit, now, n)
  local wait = state.stop - now
  local out = { allowed = true, retry = 0, delay = 0, applied = 0, changed = false }
  if action == 'settle' then
    if n > 0 then
      out.applied = clamp(n, limit.capacity + limit.debt - state.count)
    else
      out.applied = -clamp(-n, state.count)
    end
    state.count = state.count + out.applied
    out.changed = out.applied ~= 0
  elseif n > limit.capacity then
    out.allowed, out.retry = false, NEVER
  elseif state.count + n > limit.capacity then
    out.allowed, out.retry = false, wait
  elseif action == 'take' then
    state.count = state.count + n
    out.changed = true
  end
  out.remaining = max(0, limit.capacity - state.count)
  out.reset = state.count > 0 and wait or 0
  return out
end

-- fits reports whether n permits would be admitted now; commit, which may follow it
-- and nothing else, takes them.
function fixed_window.fits(state, limit, _, n)
  state.next_count = state.count + n
  return state.next_count <= limit.capacity
end

function fixed_window.commit(state)
  state.count = state.next_count
end

-- step takes n permits, if they fit, of a state brought to now, in three numbers: the
-- window's start, a number that it keeps, and the count. It returns what becomes of
-- them, or nothing.
function fixed_window.step(limit, _, start, kept, count, n)
  if count + n <= limit.capacity then
    return start, kept, count + n
  end
end

-- admit takes n permits k times, one after another, as often as they fit, and
-- returns how often.
function fixed_window.admit(state, limit, _, n, k)
  local admitted = max(0, min(k, floor((limit.capacity - state.count) / n)))
  state.count = state.count + admitted * n
  return admitted
end

-- release gives back n permits that were taken at an instant, if its window is still
-- the state's, and returns whether that changed the state.
function fixed_window.release(state, _, _, n, taken)
  if taken < state.start or taken >= state.stop or state.count == 0 then
    return false
  end
  state.count = max(0, state.count - n)
  return true
end

-- grows is how long after now Remaining grows.
function fixed_window.grows(state, _, now)
  return state.count > 0 and state.stop - now or 0
end
