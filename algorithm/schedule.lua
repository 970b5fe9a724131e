-- What the token bucket and the leaky bucket have in common: see schedule.go.
--
-- state: due, rest, last (microseconds, 1/permits of a microsecond, microseconds);
--        capacity, permits, period of the limit that wrote it; nil due is untouched
-- limit: capacity, debt, permits, period (microseconds), the rate in lowest terms;
--        once prepared, brim and brim_rest, how long the capacity takes, and step and
--        step_rest, how long one permit

local schedule = {}

-- lasting is how long n permits take: microseconds and a rest.
function schedule.lasting(limit, n)
  return muldiv(limit.period, n, limit.permits)
end

-- prepare computes once what transitions use again and again.
function schedule.prepare(limit)
  limit.brim, limit.brim_rest = schedule.lasting(limit, limit.capacity)
  limit.step, limit.step_rest = schedule.lasting(limit, 1)
end

-- within is how many permits a span reaches into, the last one perhaps in part.
function schedule.within(limit, us, rest)
  local n, part = muldiv(us, limit.permits, limit.period)
  part = part + rest
  return n + ceil(part / limit.period)
end

function schedule.plus(limit, us, rest, us2, rest2)
  us, rest = us + us2, rest + rest2
  if rest >= limit.permits then
    return us + 1, rest - limit.permits
  end
  return us, rest
end

function schedule.minus(limit, us, rest, us2, rest2)
  us, rest = us - us2, rest - rest2
  if rest < 0 then
    return us - 1, rest + limit.permits
  end
  return us, rest
end

-- up rounds a span up to a microsecond.
function schedule.up(us, rest)
  if rest > 0 then
    return us + 1
  end
  return us
end

-- backlog brings a state to now: its time, and how far past it the state is due.
function schedule.backlog(state, now)
  local t = max(now, state.last)
  if state.due >= t then
    return t, state.due - t, state.rest
  end
  return t, 0, 0
end

-- adopt takes over a state that a limit with other parameters wrote, whose capacity
-- counts as full here. It changes the state at hand, not the one stored.
function schedule.adopt(state, limit, now, full)
  if not state.due then
    state.due, state.rest, state.last = 0, 0, 0
    return
  end
  if state.capacity == limit.capacity and state.permits == limit.permits and state.period == limit.period then
    return
  end
  local t, us, rest = schedule.backlog(state, now)
  if us == 0 and rest == 0 then
    return
  end
  local outstanding = max(0, schedule.within(state, us, rest) + full - state.capacity)
  -- The most permits that fit in the horizon; their number may pass 2^53, and as a
  -- double it is rounded: one more makes up for that, and what it lets through is cut.
  us, rest = HORIZON, 0
  if outstanding <= HORIZON / limit.period * limit.permits + 1 then
    us, rest = schedule.lasting(limit, outstanding)
    if us >= HORIZON then
      us, rest = HORIZON, 0
    end
  end
  state.due, state.rest = t + us, rest
end

local function settle(limit, us, rest, n)
  local held = schedule.within(limit, us, rest)
  if n > 0 then
    n = clamp(n, limit.capacity + limit.debt - held)
    us, rest = schedule.plus(limit, us, rest, schedule.lasting(limit, n))
    return n, us, rest
  end
  n = clamp(-n, held)
  local back, back_rest = schedule.lasting(limit, n)
  if back < us or (back == us and back_rest < rest) then
    us, rest = schedule.minus(limit, us, rest, back, back_rest)
  elseif n > 0 then
    us, rest = 0, 0
  end
  return -n, us, rest
end

-- apply is the transition of both buckets. It returns the outcome and the wait for
-- the turn that a request found.
function schedule.apply(action, state, limit, now, n)
  local t, us, rest = schedule.backlog(state, now)
  local late = t - now
  local turn = schedule.up(us, rest) + late
  local out = { allowed = true, retry = 0, delay = 0, applied = 0, changed = false }
  if action == 'settle' then
    out.applied, us, rest = settle(limit, us, rest, n)
    out.changed = out.applied ~= 0
  elseif n > limit.capacity then
    out.allowed, out.retry = false, NEVER
  else
    local after, after_rest = schedule.plus(limit, us, rest, schedule.lasting(limit, n))
    if after > limit.brim or (after == limit.brim and after_rest > limit.brim_rest) then
      out.allowed = false
      out.retry = schedule.up(schedule.minus(limit, after, after_rest, limit.brim, limit.brim_rest)) + late
    elseif action == 'take' then
      us, rest = after, after_rest
      out.changed = true
    end
  end
  if out.changed then
    state.due, state.rest, state.last = t + us, rest, t
  end
  out.remaining = max(0, limit.capacity - schedule.within(limit, us, rest))
  out.reset = 0
  if us > 0 or rest > 0 then
    out.reset = schedule.up(us, rest) + late
  end
  return out, turn
end

-- fits reports whether n permits would be admitted now; commit, which may follow it
-- and nothing else, takes them.
function schedule.fits(state, limit, now, n)
  if n > limit.capacity then
    return false
  end
  local t, us, rest = schedule.backlog(state, now)
  us, rest = schedule.plus(limit, us, rest, schedule.lasting(limit, n))
  state.next_due, state.next_rest, state.next_last = t + us, rest, t
  return us < limit.brim or (us == limit.brim and rest <= limit.brim_rest)
end

function schedule.commit(state)
  state.due, state.rest, state.last = state.next_due, state.next_rest, state.next_last
end

-- step takes n permits, if they fit, of a state in three numbers: the time of its last
-- change, how far past that it is due, and the rest. It returns the new numbers,
-- or nothing if the permits do not fit.
function schedule.step(limit, now, last, us, rest, n)
  local more, more_rest = limit.step, limit.step_rest
  if n > limit.capacity then
    return
  elseif n > 1 then
    more, more_rest = schedule.lasting(limit, n)
  end
  return schedule.take_stored(now, nil, last, us, rest, more, more_rest, limit.permits, limit.brim, limit.brim_rest)
end

-- take_stored is step where the lasting of the permits taken, more and more_rest, and that of the
-- capacity, brim and brim_rest, are known. A state that is not found is three zeros.
function schedule.take_stored(now, _, last, us, rest, more, more_rest, permits, brim, brim_rest)
  if now > last then
    us, last = us - (now - last), now
    if us < 0 then
      us, rest = 0, 0
    end
  end
  us, rest = us + more, rest + more_rest
  if rest >= permits then
    us, rest = us + 1, rest - permits
  end
  if us < brim or (us == brim and rest <= brim_rest) then
    return last, us, rest
  end
end

-- admit takes n permits k times, one after another, as often as they fit, and
-- returns how often. It is k times apply, in one step and without outcomes.
function schedule.admit(state, limit, now, n, k)
  local t, us, rest = schedule.backlog(state, now)
  local admitted = k
  local after, after_rest = limit.brim, nil
  if n * k <= limit.capacity then
    -- Most often all fit, which takes no division by the period to see.
    after, after_rest = schedule.plus(limit, us, rest, schedule.lasting(limit, n * k))
  end
  if not after_rest or after > limit.brim or (after == limit.brim and after_rest > limit.brim_rest) then
    admitted = floor((limit.capacity - schedule.within(limit, us, rest)) / n)
    if admitted < 1 then
      return 0
    end
    after, after_rest = schedule.plus(limit, us, rest, schedule.lasting(limit, admitted * n))
  end
  state.due, state.rest, state.last = t + after, after_rest, t
  return admitted
end

-- release gives back n permits that were taken before, and returns whether that
-- changed the state.
function schedule.release(state, limit, now, n)
  local t, us, rest = schedule.backlog(state, now)
  local applied
  applied, us, rest = settle(limit, us, rest, -n)
  if applied == 0 then
    return false
  end
  state.due, state.rest, state.last = t + us, rest, t
  return true
end

-- grows is how long after now one more whole permit is there.
function schedule.grows(state, limit, now)
  local t, us, rest = schedule.backlog(state, now)
  local held = schedule.within(limit, us, rest)
  if held == 0 then
    return 0
  end
  local free, free_rest = schedule.lasting(limit, min(held, limit.capacity) - 1)
  return schedule.up(schedule.minus(limit, us, rest, free, free_rest)) + t - now
end
