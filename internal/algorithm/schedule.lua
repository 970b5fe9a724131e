-- Token bucket and leaky bucket, the twin of schedule.go. A token bucket's state is due when the bucket is full again, a
-- leaky bucket's when the queue has drained.
--
-- state: due, frac, last (microseconds, 1/permits of a microsecond, microseconds);
--        capacity, permits, period of the limit that wrote it; nil due is untouched;
--        held, how many of a token bucket's permits are held, or nil; then debt of that limit, too;
--        runs, set by adopt: the two runs of a state that another version of the limit wrote, see changed.go
-- limit: capacity, debt, permits, period (microseconds), the rate in lowest terms; queue of a leaky bucket;
--        once prepared, capacity_us and capacity_frac, how long the capacity takes, and permit_us
--        and permit_frac, how long one permit; kept_us and kept_frac, how long the capacity takes but for kept

local schedule = {}

-- A span of time is two numbers: us + frac/permits microseconds, 0 <= frac < permits.

-- time_of is how long n permits take, a span.
function schedule.time_of(limit, n)
  return muldiv(limit.period, n, limit.permits)
end

-- prepare computes once what transitions use again and again.
function schedule.prepare(limit)
  limit.capacity_us, limit.capacity_frac = schedule.time_of(limit, limit.capacity)
  limit.permit_us, limit.permit_frac = schedule.time_of(limit, 1)
end

-- permits_in is how many permits a span reaches into, the last one perhaps in part.
function schedule.permits_in(limit, us, frac)
  local n, part = muldiv(us, limit.permits, limit.period)
  part = part + frac
  return n + ceil(part / limit.period)
end

function schedule.plus(limit, us, frac, us2, frac2)
  us, frac = us + us2, frac + frac2
  if frac >= limit.permits then
    return us + 1, frac - limit.permits
  end
  return us, frac
end

function schedule.minus(limit, us, frac, us2, frac2)
  us, frac = us - us2, frac - frac2
  if frac < 0 then
    return us - 1, frac + limit.permits
  end
  return us, frac
end

-- round_up rounds a span up to a microsecond.
function schedule.round_up(us, frac)
  if frac > 0 then
    return us + 1
  end
  return us
end

-- held_time is how long the permits take that are held.
local function held_time(state, limit)
  if not state.held then
    return 0, 0
  end
  return schedule.time_of(limit, min(state.held, limit.capacity + limit.debt))
end

local function less(us, frac, us2, frac2)
  return us < us2 or (us == us2 and frac < frac2)
end

-- backlog brings a state to now: its time, and how far past it the state is due, at least as
-- far as what is held takes.
function schedule.backlog(state, limit, now)
  local t = max(now, state.last)
  local us, frac = 0, 0
  if state.due >= t then
    us, frac = state.due - t, state.frac
  end
  if state.held then
    local least, least_frac = held_time(state, limit)
    if less(us, frac, least, least_frac) then
      us, frac = least, least_frac
    end
  end
  return t, us, frac
end

-- same reports whether a run's limit gives a state the same meaning.
function schedule.same(run, limit)
  return run.capacity == limit.capacity and run.permits == limit.permits and run.period == limit.period
end

-- rested is from when on a run that is full there is full for other versions: of a token bucket, once it could have
-- been filled from empty since its last change.
function schedule.rested(run)
  return run.queue and 0 or run.last + schedule.round_up(schedule.time_of(run, run.capacity))
end

-- take_over returns what a run of another limit has at an instant as the limit's own due, frac and last.
function schedule.take_over(run, limit, at)
  local t, us, frac = schedule.backlog(run, run, at)
  if schedule.same(run, limit) then
    return t + us, frac, t
  end
  local outstanding = schedule.permits_in(run, us, frac)
  if not run.queue and (outstanding > 0 or t < schedule.rested(run)) then
    outstanding = max(0, outstanding + limit.capacity - run.capacity)
  end
  -- The most permits that fit in the horizon; their number may pass 2^53, and as a
  -- double it is rounded: one more makes up for that, and what it lets through is cut.
  us, frac = HORIZON, 0
  if outstanding <= HORIZON / limit.period * limit.permits + 1 then
    us, frac = schedule.time_of(limit, outstanding)
    if us >= HORIZON then
      us, frac = HORIZON, 0
    end
  end
  return t + us, frac, t
end

-- renew begins the limit's own run at the writer's last change.
function schedule.renew(runs, limit)
  local carried, taken = runs.carried, runs.taken
  taken.due, taken.frac, taken.last, taken.held = carried.due, carried.frac, carried.last, carried.held
  if not schedule.same(carried, limit) then -- else only the debt differs, down to which what is held stands
    taken.due, taken.frac, taken.last = schedule.take_over(carried, limit, carried.last)
  end
end

-- adopt readies a loaded state for the limit: one that another version wrote becomes the better of its two runs. Of that
-- a token bucket keeps the whole permits that are there, at most the new capacity, and a leaky bucket the permits queued,
-- rounded up.
function schedule.adopt(state, limit, now)
  state.runs = nil
  if not state.due then
    state.due, state.frac, state.last = 0, 0, 0
    return
  end
  if schedule.same(state, limit) and (not state.held or state.debt == limit.debt) then
    return
  end
  state.runs = {
    carried = {
      due = state.due, frac = state.frac, last = state.last, held = state.held, queue = limit.queue,
      capacity = state.capacity, permits = state.permits, period = state.period, debt = state.debt,
    },
    taken = {},
  }
  schedule.renew(state.runs, limit)
  schedule.read(state, limit, now)
end

-- read makes of a state with two runs what the limit has of it now: its backlog, of which what is held is a part.
function schedule.read(state, limit, now)
  local runs = state.runs
  state.due, state.frac, state.last = schedule.take_over(runs.carried, limit, now)
  local t, us, frac = schedule.backlog(state, limit, now)
  local at, taken, taken_frac = schedule.backlog(runs.taken, limit, now)
  if less(taken, taken_frac, us, frac) then
    t, us, frac = at, taken, taken_frac
  end
  state.due, state.frac, state.last = t + us, frac, t
end

-- leaves is how long after now at most so many permits are outstanding; never if that takes the end of a hold.
function schedule.leaves(state, limit, now, most)
  local t, us, frac = schedule.backlog(state, limit, now)
  if schedule.permits_in(limit, us, frac) <= most then
    return 0
  end
  local left, left_frac = schedule.time_of(limit, most)
  if state.held and less(left, left_frac, held_time(state, limit)) then
    return NEVER
  end
  return schedule.round_up(schedule.minus(limit, us, frac, left, left_frac)) + t - now
end

-- wait is how long after now n permits are there in one of the two runs of a state, if no hold ends until then.
function schedule.wait(state, limit, now, n)
  local runs, most, carried = state.runs, limit.capacity - n, nil
  local writer = runs.carried
  if (writer.held or 0) > most then -- what is held stands here, too
    return NEVER
  elseif writer.queue then
    carried = schedule.leaves(writer, writer, now, most)
  elseif n <= writer.capacity then
    carried = schedule.leaves(writer, writer, now, writer.capacity - n)
  else
    carried = schedule.leaves(writer, writer, now, 0)
    if carried ~= NEVER then
      carried = max(carried, schedule.rested(writer) - now)
    end
  end
  local taken = schedule.leaves(runs.taken, limit, now, most)
  if carried == NEVER or taken == NEVER then
    return max(carried, taken)
  end
  return min(carried, taken)
end

-- settle charges or refunds n on a backlog; a refund leaves least, which is held.
local function settle(limit, us, frac, n, least, least_frac)
  if n > 0 then
    n = clamp(n, limit.capacity + limit.debt - schedule.permits_in(limit, us, frac))
    us, frac = schedule.plus(limit, us, frac, schedule.time_of(limit, n))
    return n, us, frac
  end
  local free, free_frac = schedule.minus(limit, us, frac, least, least_frac)
  n = clamp(-n, schedule.permits_in(limit, free, free_frac))
  local back, back_frac = schedule.time_of(limit, n)
  if less(back, back_frac, free, free_frac) then
    us, frac = schedule.minus(limit, us, frac, back, back_frac)
  elseif n > 0 then
    us, frac = least, least_frac
  end
  return -n, us, frac
end

-- wait_own is how long until n permits more fit, which would make the backlog what it is after them: never
-- if that takes the end of a hold.
local function wait_own(state, limit, n, after, after_frac)
  if state.held then
    local more, more_frac = schedule.time_of(limit, n)
    local least, least_frac = schedule.plus(limit, more, more_frac, held_time(state, limit))
    if less(limit.capacity_us, limit.capacity_frac, least, least_frac) then
      return NEVER
    end
  end
  return schedule.round_up(schedule.minus(limit, after, after_frac, limit.capacity_us, limit.capacity_frac))
end

-- apply carries out an action (take, peek, deny, settle) of n permits at now, so that keep more are left. A queue's
-- delay of an admitted request is the time until its turn, rounded up.
function schedule.apply(action, state, limit, now, n, keep)
  local t, us, frac = schedule.backlog(state, limit, now)
  local late = t - now
  local turn = schedule.round_up(us, frac) + late
  local out = { allowed = true, retry = 0, delay = 0, applied = 0, changed = false }
  if action == 'settle' then
    out.applied, us, frac = settle(limit, us, frac, n, held_time(state, limit))
    out.changed = out.applied ~= 0
  elseif n > limit.capacity - keep then
    out.allowed, out.retry = false, NEVER
  else
    local after, after_frac = schedule.plus(limit, us, frac, schedule.time_of(limit, n))
    local full, full_frac = after, after_frac
    if keep > 0 then
      full, full_frac = schedule.plus(limit, after, after_frac, schedule.time_of(limit, keep))
    end
    if full > limit.capacity_us or (full == limit.capacity_us and full_frac > limit.capacity_frac) then
      out.allowed = false
      out.retry = wait_own(state, limit, n + keep, full, full_frac)
      if out.retry ~= NEVER then
        out.retry = out.retry + late
      end
    elseif action == 'take' then
      us, frac = after, after_frac
      out.changed = true
    end
  end
  if out.changed then
    state.due, state.frac, state.last = t + us, frac, t
  end
  out.remaining = max(0, limit.capacity - keep - schedule.permits_in(limit, us, frac))
  out.reset = 0
  if us > 0 or frac > 0 then
    out.reset = schedule.round_up(us, frac) + late
  end
  correct_waits(schedule.wait, state, limit, now, n, keep, out)
  if limit.queue and out.allowed and (action == 'take' or action == 'peek') then
    out.delay = turn
  end
  return out
end

-- fits reports whether n permits would be admitted now; commit, which may follow it
-- and nothing else, takes them.
function schedule.fits(state, limit, now, n, keep)
  if n > limit.capacity - keep then
    return false
  end
  local t, us, frac = schedule.backlog(state, limit, now)
  us, frac = schedule.plus(limit, us, frac, schedule.time_of(limit, n))
  state.next_due, state.next_frac, state.next_last = t + us, frac, t
  if keep > 0 then
    us, frac = schedule.plus(limit, us, frac, schedule.time_of(limit, keep))
  end
  return us < limit.capacity_us or (us == limit.capacity_us and frac <= limit.capacity_frac)
end

function schedule.commit(state)
  state.runs = nil
  state.due, state.frac, state.last = state.next_due, state.next_frac, state.next_last
end

-- step takes n permits, if they fit, of a state in three numbers: the time of its last
-- change, how far past that it is due, us and frac. It returns the new numbers,
-- or nothing if the permits do not fit.
function schedule.step(limit, now, last, us, frac, n, keep)
  local more, more_frac = limit.permit_us, limit.permit_frac
  local room, room_frac = limit.capacity_us, limit.capacity_frac
  if n > limit.capacity - keep then
    return
  elseif n > 1 then
    more, more_frac = schedule.time_of(limit, n)
  end
  if keep > 0 then
    if limit.kept ~= keep then -- as in the step before, most often
      limit.kept, limit.kept_us, limit.kept_frac = keep, schedule.time_of(limit, limit.capacity - keep)
    end
    room, room_frac = limit.kept_us, limit.kept_frac
  end
  return schedule.take_stored(now, last, us, frac, more, more_frac, limit.permits, room, room_frac)
end

-- take_stored is step where the time of the permits taken, more and more_frac, and that of the
-- capacity but for what is kept, room and room_frac, are known. A state that is not found is three zeros.
function schedule.take_stored(now, last, us, frac, more, more_frac, permits, room, room_frac)
  if now > last then
    us, last = us - (now - last), now
    if us < 0 then
      us, frac = 0, 0
    end
  end
  us, frac = us + more, frac + more_frac
  if frac >= permits then
    us, frac = us + 1, frac - permits
  end
  if us < room or (us == room and frac <= room_frac) then
    return last, us, frac
  end
end

-- admit takes n permits k times, one after another, as often as they fit, and
-- returns how often. It is k times apply, in one step and without outcomes.
function schedule.admit(state, limit, now, n, keep, k)
  local t, us, frac = schedule.backlog(state, limit, now)
  local admitted = k
  local after, after_frac = limit.capacity_us, nil
  if keep == 0 and n * k <= limit.capacity then
    -- Most often all fit, which takes no division by the period to see.
    after, after_frac = schedule.plus(limit, us, frac, schedule.time_of(limit, n * k))
  end
  if not after_frac or after > limit.capacity_us or (after == limit.capacity_us and after_frac > limit.capacity_frac) then
    admitted = min(k, floor((limit.capacity - keep - schedule.permits_in(limit, us, frac)) / n))
    if admitted < 1 then
      return 0
    end
    after, after_frac = schedule.plus(limit, us, frac, schedule.time_of(limit, admitted * n))
  end
  state.due, state.frac, state.last, state.runs = t + after, after_frac, t, nil
  return admitted
end

-- refund_taken gives back n permits that were taken before, and returns whether that
-- changed the state.
function schedule.refund_taken(state, limit, now, n)
  local t, us, frac = schedule.backlog(state, limit, now)
  local applied
  applied, us, frac = settle(limit, us, frac, -n, held_time(state, limit))
  if applied == 0 then
    return false
  end
  state.due, state.frac, state.last, state.runs = t + us, frac, t, nil
  return true
end

-- return_leased gives back n permits that were leased at an instant and not spent, less what
-- has been refilled since, and returns whether that changed the state.
function schedule.return_leased(state, limit, now, n, leased)
  local since = max(0, max(now, state.last) - leased)
  if since >= (schedule.time_of(limit, n)) then
    return false
  end
  return schedule.refund_taken(state, limit, now, n - schedule.permits_in(limit, since, 0))
end

-- end_hold ends a hold of n permits, of which kept stay charged, and returns how many came back.
function schedule.end_hold(state, limit, now, n, kept)
  local t, us, frac = schedule.backlog(state, limit, now)
  local back, room = n - kept, limit.capacity + limit.debt
  if state.held > room then
    -- A bucket that has become smaller has no room for all that is held: what it has not does not come back.
    local least, least_frac = schedule.time_of(limit, min(state.held - n, room))
    back = min(back, schedule.permits_in(limit, schedule.minus(limit, us, frac, least, least_frac)))
  end
  local time, time_frac = schedule.time_of(limit, back)
  if less(time, time_frac, us, frac) then
    us, frac = schedule.minus(limit, us, frac, time, time_frac)
  else
    us, frac = 0, 0
  end
  state.due, state.frac, state.last, state.runs = t + us, frac, t, nil
  return back
end

-- used is how many permits are outstanding, one of them perhaps in part.
function schedule.used(state, limit, now)
  local _, us, frac = schedule.backlog(state, limit, now)
  return schedule.permits_in(limit, us, frac)
end
