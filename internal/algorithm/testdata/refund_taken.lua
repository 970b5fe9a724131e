-- Drives refund_taken as a store does: adopt a loaded state for its limit, refund, and
-- tell whether that changed the state, and what it is then. It follows the twins.

local kinds = {
  TOKEN_BUCKET = { schedule, 'due', 'frac', 'last' },
  LEAKY_BUCKET = { schedule, 'due', 'frac', 'last' },
  FIXED_WINDOW = { fixed_window, 'start', 'stop', 'count' },
  SLIDING_WINDOW_COUNTER = { sliding_window_counter, 'start', 'previous', 'current' },
}

-- A state is its three numbers, without the first if it is untouched.
return function(name, limit, now, n, taken, first, second, third)
  local twin, a, b, c = unpack(kinds[name])
  local state = { capacity = limit.capacity, permits = limit.permits, period = limit.period, window = limit.window }
  state[a], state[b], state[c] = first, second, third
  if twin.prepare then
    twin.prepare(limit)
  end
  assert(twin.adopt(state, limit, now) ~= false, 'the edges do not hold the time')
  local changed = twin.refund_taken(state, limit, now, n, taken)
  return changed, state[a], state[b], state[c]
end
