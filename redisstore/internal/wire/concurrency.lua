-- Concurrency, the twin of Concurrency in hold.go: what is held is all of its state.
local concurrency = {
  adopt = function() end,
  apply = function(_, state, limit, _, n, keep)
    local held = state.held or 0
    local allowed = n == 0 or held + n <= limit.capacity - keep
    return {
      allowed = allowed, retry = allowed and 0 or NEVER, remaining = max(0, limit.capacity - keep - held),
      reset = 0, delay = 0, applied = 0, changed = false,
    }
  end,
  end_hold = function(_, _, _, n) return n end,
  used = function(state) return state.held or 0 end,
  leaves = function(state, _, _, most) return (state.held or 0) > most and NEVER or 0 end,
}
kinds.n = {
  twin = concurrency, format = '>BBB', bytes = 3, moves = false,
  describe = function() end, blank = function() end, read = function() end,
  write = function() return now, 0, 0, 0 end,
}
