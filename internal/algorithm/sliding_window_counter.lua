-- Sliding window counter, the twin of sliding_window_counter.go.
--
-- state: start (microseconds), previous, current, window (of the limit that wrote
--        it); elapsed is set by adopt; nil start is untouched;
--        written, as what start and current were written, if holds have expired since, or nil;
--        runs, set by adopt: the two runs of a state that a version of another length wrote, see changed.go
-- limit: capacity, debt, window (microseconds)

local sliding_window_counter = {}

-- roll brings a state to the window of t, of the length by which its counts are kept.
local function roll(state, window, t)
  state.elapsed = t % window
  local start = t - state.elapsed
  if start == state.start + window then
    state.previous, state.current = state.current, 0
  elseif start ~= state.start then
    state.previous, state.current = 0, 0
  end
  state.start = start
end

-- used is the estimate, rounded up.
local function used(state, limit)
  if state.previous == 0 then
    return state.current
  end
  local n, remainder = muldiv(limit.window - state.elapsed, state.previous, limit.window)
  return state.current + n + (remainder > 0 and 1 or 0)
end

-- adopt readies a loaded state: it brings it to now. One of another length becomes the better of its two runs.
function sliding_window_counter.adopt(state, limit, now)
  state.runs = nil
  if not state.start then
    state.start, state.previous, state.current = 0, 0, 0
  elseif state.window ~= limit.window then
    local written = state.written or state
    local from = written.start + state.window
    state.runs = {
      carried = { start = state.start, previous = state.previous, current = state.current, window = state.window },
      taken = { start = from - from % limit.window, previous = 0, current = written.current, window = limit.window },
      from = from,
    }
    sliding_window_counter.read(state, limit, now)
    return
  end
  roll(state, limit.window, max(now, state.start))
end

-- rolled is a run brought to an instant.
function sliding_window_counter.rolled(run, at)
  local copy = { start = run.start, previous = run.previous, current = run.current, window = run.window }
  roll(copy, run.window, max(at, run.start))
  return copy
end

-- read makes of a state with two runs what the limit has of it now: what the writer estimates, rounded up, is counted
-- in the window of now, or what its own run has, which begins at the end of the window of the last change.
function sliding_window_counter.read(state, limit, now)
  local runs = state.runs
  local t = max(now, runs.carried.start)
  local carried = sliding_window_counter.rolled(runs.carried, now)
  state.start, state.previous, state.current = t - t % limit.window, 0, used(carried, carried)
  roll(state, limit.window, t)
  if t >= runs.from then
    local taken = sliding_window_counter.rolled(runs.taken, now)
    if used(taken, limit) <= state.current then
      state.start, state.previous, state.current, state.elapsed = taken.start, taken.previous, taken.current, taken.elapsed
    end
  end
end

-- wait_own is how long after the elapsed time at most so many permits are counted, when it is more now.
local function wait_own(state, limit, most)
  local window = limit.window
  local free = most - state.current
  if free >= 0 and state.previous > 0 then
    local f = muldiv(window, free, state.previous)
    if f >= 1 then
      return window - f - state.elapsed
    end
  end
  local us = window - state.elapsed
  if state.current > most then
    us = us + window - muldiv(window, most, state.current)
  end
  return us
end

-- leaves_of is leaves of a run.
function sliding_window_counter.leaves_of(run, now, most)
  local state = sliding_window_counter.rolled(run, now)
  return sliding_window_counter.leaves(state, state, now, most)
end

-- wait is how long after now n permits are there in one of the two runs of a state.
function sliding_window_counter.wait(state, limit, now, n)
  local runs, most = state.runs, limit.capacity - n
  local from = max(now, runs.from)
  return min(sliding_window_counter.leaves_of(runs.carried, now, most), from - now + sliding_window_counter.leaves_of(runs.taken, from, most))
end

local function settle(state, limit, n)
  if n > 0 then
    n = clamp(n, limit.capacity + limit.debt - used(state, limit))
    state.current = state.current + n
    return n
  end
  n = clamp(-n, state.previous + state.current)
  local from_previous = min(n, state.previous)
  state.previous = state.previous - from_previous
  state.current = state.current - (n - from_previous)
  return -n
end

-- apply carries out an action (take, peek, deny, settle) of n permits at now, so that keep more are left.
function sliding_window_counter.apply(action, state, limit, now, n, keep)
  local out = { allowed = true, retry = 0, delay = 0, applied = 0, changed = false }
  local late = state.start + state.elapsed - now
  if action == 'settle' then
    out.applied = settle(state, limit, n)
    out.changed = out.applied ~= 0
  elseif n > limit.capacity - keep then
    out.allowed, out.retry = false, NEVER
  elseif used(state, limit) + n > limit.capacity - keep then
    out.allowed, out.retry = false, wait_own(state, limit, limit.capacity - n - keep) + late
  elseif action == 'take' then
    state.current = state.current + n
    out.changed = true
  end
  out.remaining = max(0, limit.capacity - keep - used(state, limit))
  out.reset = 0
  if state.current > 0 then
    out.reset = state.start - now + 2 * limit.window
  elseif state.previous > 0 then
    out.reset = state.start - now + limit.window
  end
  correct_waits(sliding_window_counter.wait, state, limit, now, n, keep, out)
  return out
end

-- fits reports whether n permits would be admitted now; commit, which may follow it
-- and nothing else, takes them.
function sliding_window_counter.fits(state, limit, _, n, keep)
  state.next_current = state.current + n
  return used(state, limit) + n <= limit.capacity - keep
end

function sliding_window_counter.commit(state)
  state.current, state.runs = state.next_current, nil
end

-- take_stored brings a state in three numbers, as it is stored, to now, and takes n permits, if they fit in the
-- capacity, less what is to be kept: the window's start and the two counts, three zeros of one that is not found. It
-- returns what becomes of them, or nothing.
function sliding_window_counter.take_stored(now, start, previous, current, n, capacity, window)
  local t = start > now and start or now
  local elapsed = t % window
  local begun = t - elapsed
  if begun ~= start then
    previous, current = begun == start + window and current or 0, 0
  end
  local total = current + n
  if previous > 0 then
    local part, remainder = muldiv(window - elapsed, previous, window)
    total = total + part + (remainder > 0 and 1 or 0)
  end
  if total <= capacity then
    return begun, previous, current + n
  end
end

-- admit takes n permits k times, one after another, as often as they fit, and
-- returns how often.
function sliding_window_counter.admit(state, limit, _, n, keep, k)
  local admitted = max(0, min(k, floor((limit.capacity - keep - used(state, limit)) / n)))
  state.current = state.current + admitted * n
  if admitted > 0 then
    state.runs = nil
  end
  return admitted
end

-- refund_taken gives back n permits that were taken at an instant, from the counter of its
-- window, and returns whether that changed the state.
function sliding_window_counter.refund_taken(state, limit, _, n, taken)
  local counter = taken >= state.start and 'current' or 'previous'
  if taken < state.start - limit.window or state[counter] == 0 then
    return false
  end
  state[counter], state.runs = max(0, state[counter] - n), nil
  return true
end

-- give_back_stored gives back n permits of a hold's piece, if its window still counts at an instant, of a state as it is
-- stored. It returns the state brought to that instant, and how many came back.
function sliding_window_counter.give_back_stored(limit, at, start, previous, current, n, from)
  local window, begun = limit.window, start
  if at >= start + window then
    begun = at - at % window
  end
  if begun ~= start then
    previous, current = begun == start + window and current or 0, 0
  end
  local counted = from == begun and current or from == begun - window and previous or 0
  if n > counted then
    n = counted
  end
  if from == begun then
    return begun, previous, current - n, n
  end
  return begun, previous - n, current, n
end

-- give_back is that of a state.
function sliding_window_counter.give_back(state, limit, at, n, from)
  if not state.start then
    return 0
  end
  state.elapsed = max(at, state.start) % limit.window
  state.start, state.previous, state.current, n =
    sliding_window_counter.give_back_stored(limit, at, state.start, state.previous, state.current, n, from)
  return n
end

sliding_window_counter.used = used

-- leaves is how long after now at most so many permits are counted.
function sliding_window_counter.leaves(state, limit, now, most)
  if used(state, limit) <= most then
    return 0
  end
  return wait_own(state, limit, most) + state.start + state.elapsed - now
end
