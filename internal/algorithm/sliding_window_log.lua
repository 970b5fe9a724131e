-- Sliding window log, the twin of sliding_window_log.go.
--
-- log:   what an encoding loaded; nil at means that nothing is recorded
--          at, total     the newest record: its time, the running total it reached
--          stored        the running total of what is stored (total before a write)
--          gone          the total at or below which permits have left
--          floor         set by adopt: the time below which the log's does not run back
--          request       time of the newest recorded request, 0 when there is none
--          window, interval  of the limit that wrote it; nil of a new log
--          before(t)     the total of the newest stored record at or before t, or 0
--          reached(n)    the time of the first stored record whose total is n or more
--          fresh         set by a write: whether a record is to be added, which then holds
--                        a permit that has not left
--          reader        set by adopt of a log that another version wrote: the limit by which it is read, see changed.go
-- limit: capacity, debt, window, interval (microseconds), count_denied

local sliding_window_log = {}

-- up_to is the running total of what was recorded at or before t.
local function up_to(log, t)
  if log.at and log.at <= t then
    return max(log.gone, log.total)
  end
  if log.asked ~= t then
    log.asked, log.answer = t, log.before(t)
  end
  return max(log.gone, log.answer)
end

local function reached(log, n)
  if n > log.stored then
    return log.at
  end
  return log.reached(n)
end

local function newest(log)
  if log.at and log.total > log.gone then
    return max(log.at, log.request, log.floor or 0)
  end
  return max(log.request, log.floor or 0)
end

local function spaced(log, interval, t)
  return interval == 0 or log.request == 0 or t - log.request >= interval
end

-- adopt readies a loaded log: it keeps the entries, less those that have left. Of a log that another version wrote they
-- leave, and the interval since the last request ends, by the shorter of the two lengths.
function sliding_window_log.adopt(log, limit, now)
  log.reader = nil
  if not log.window then
    return
  end
  local reader = limit
  if log.window ~= limit.window or log.interval ~= limit.interval then
    reader = { capacity = limit.capacity, window = min(log.window, limit.window), interval = min(log.interval, limit.interval) }
    log.reader = reader
  end
  local t = max(now, newest(log))
  log.gone = up_to(log, t - reader.window)
  if (log.reader or log.total == log.gone) and spaced(log, reader.interval, t) then
    log.request, log.floor = 0, t -- a new log, except its time
  end
end

local function append(log, t, n)
  log.at, log.total, log.fresh = t, log.total + n, true
end

local function settle(log, limit, t, gone, n)
  local active = log.total - gone
  if n > 0 then
    n = clamp(n, limit.capacity + limit.debt - active)
  else
    n = -clamp(-n, active)
  end
  if n > 0 then
    log.gone = gone
    append(log, t, n)
  elseif n < 0 then
    log.gone = gone - n
    log.fresh = log.fresh and log.total > log.gone
  end
  return n
end

-- apply_as is apply by a limit or by a reader.
function sliding_window_log.apply_as(action, log, limit, now, n, keep)
  local t = max(now, newest(log))
  local gone = up_to(log, t - limit.window)
  local active = log.total - gone
  local out = { retry = 0, delay = 0, applied = 0, changed = false }
  out.allowed = action == 'settle'
    or (active + n <= limit.capacity - keep and n <= limit.capacity - keep and spaced(log, limit.interval, t))
  if action == 'settle' then
    out.applied = settle(log, limit, t, gone, n)
    out.changed = out.applied ~= 0
    gone = max(gone, log.gone)
    t = max(now, newest(log)) -- earlier, when all that held back the time was refunded
  elseif action == 'take' and out.allowed then
    log.gone = gone
    append(log, t, n)
    log.request = t
    out.changed = true
  elseif action == 'deny' and limit.count_denied then
    append(log, t, min(n, limit.capacity))
    log.request = t
    log.gone = max(gone, log.total - limit.capacity)
    gone = log.gone
    out.changed = true
  end
  active = log.total - gone
  local spacing = 0
  if not spaced(log, limit.interval, t) then
    spacing = log.request + limit.interval
  end
  if action ~= 'settle' and (not out.allowed or action == 'deny') then
    if n > limit.capacity - keep then
      out.retry = NEVER
    else
      local at = max(now, spacing)
      local over = active + n + keep - limit.capacity
      if over > 0 then
        at = max(at, reached(log, gone + over) + limit.window)
      end
      out.retry = at - now
    end
  end
  out.remaining = max(0, limit.capacity - keep - active)
  local at = max(now, spacing)
  if active > 0 then
    at = max(at, log.at + limit.window)
  end
  out.reset = at - now
  return out
end

-- apply carries out an action (take, peek, deny, settle) of n permits at now, so that keep more find room. Of a log that
-- another version wrote its reader is asked, and what is written is the limit's own.
function sliding_window_log.apply(action, log, limit, now, n, keep)
  local reader = log.reader
  if not reader then
    return sliding_window_log.apply_as(action, log, limit, now, n, keep)
  end
  local out
  if action == 'settle' then
    out = sliding_window_log.apply_as(action, log, limit, now, n, keep)
    if not out.changed then
      return sliding_window_log.apply_as(action, log, reader, now, 0, keep)
    end
  elseif action == 'deny' and limit.count_denied then
    out = sliding_window_log.apply_as(action, log, limit, now, n, keep)
  else
    out = sliding_window_log.apply_as('peek', log, reader, now, n, keep)
    if action ~= 'take' or not out.allowed then
      return out
    end
    out = sliding_window_log.apply_as(action, log, limit, now, n, keep)
  end
  log.reader = nil
  return out
end

-- give_back gives back n permits of a hold's piece, as the oldest that are active, if it is active itself
-- at an instant, and returns how many.
function sliding_window_log.give_back(log, limit, now, n, from)
  local t = max(now, newest(log))
  if from <= t - limit.window then
    return 0
  end
  local gone = up_to(log, t - limit.window)
  n = min(n, log.total - gone)
  log.gone, log.floor = gone + n, nil
  log.fresh = log.fresh and log.total > log.gone
  return n
end

-- used is how many permits are counted.
function sliding_window_log.used(log, limit, now)
  return log.total - up_to(log, max(now, newest(log)) - (log.reader or limit).window)
end

-- leaves is how long after now at most so many permits are counted.
function sliding_window_log.leaves(log, limit, now, most)
  local window = (log.reader or limit).window
  local gone = up_to(log, max(now, newest(log)) - window)
  local over = log.total - gone - most
  return over > 0 and reached(log, gone + over) + window - now or 0
end
