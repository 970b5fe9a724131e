-- Leaky bucket, the twin of leaky_bucket.go. State and limit as in schedule.lua;
-- state.due is when the queue has drained.

local leaky_bucket = {}

-- adopt readies a loaded state for the limit: of another version's it keeps the
-- permits queued, rounded up.
function leaky_bucket.adopt(state, limit, now)
  schedule.adopt(state, limit, now, false)
end

-- apply carries out an action (take, peek, deny, settle) of n permits at now, so that keep more find room. An
-- admitted request's delay is the time until its turn, rounded up.
function leaky_bucket.apply(action, state, limit, now, n, keep)
  local out, turn = schedule.apply(action, state, limit, now, n, keep)
  if out.allowed and (action == 'take' or action == 'peek') then
    out.delay = turn
  end
  return out
end

leaky_bucket.prepare = schedule.prepare
leaky_bucket.fits = schedule.fits
leaky_bucket.commit = schedule.commit
leaky_bucket.step = schedule.step
leaky_bucket.take_stored = schedule.take_stored
leaky_bucket.admit = schedule.admit
leaky_bucket.refund_taken = schedule.refund_taken
leaky_bucket.used = schedule.used
leaky_bucket.leaves = schedule.leaves
leaky_bucket.wait = schedule.wait
leaky_bucket.read = schedule.read
leaky_bucket.renew = schedule.renew
