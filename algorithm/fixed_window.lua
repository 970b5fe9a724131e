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

-- grows is how long after now Remaining grows.
function fixed_window.grows(state, _, now)
  return state.count > 0 and state.stop - now or 0
end
