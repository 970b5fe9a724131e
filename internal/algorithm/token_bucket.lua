-- Token bucket, the twin of token_bucket.go. State and limit as in schedule.lua;
-- state.due is when the bucket is full again.

local token_bucket = {}

-- adopt readies a loaded state for the limit: of another version's it keeps the whole permits
-- that are there, at most the new capacity.
function token_bucket.adopt(state, limit, now)
  schedule.adopt(state, limit, now, true)
end

-- apply carries out an action (take, peek, deny, settle) of n permits at now, so that keep more are left.
function token_bucket.apply(action, state, limit, now, n, keep)
  local out = schedule.apply(action, state, limit, now, n, keep)
  return out
end

-- return_leased gives back n permits that were leased at an instant and not spent, less what
-- has been refilled since, and returns whether that changed the state.
function token_bucket.return_leased(state, limit, now, n, leased)
  local since = max(0, max(now, state.last) - leased)
  if since >= (schedule.time_of(limit, n)) then
    return false
  end
  return schedule.refund_taken(state, limit, now, n - schedule.permits_in(limit, since, 0))
end

token_bucket.prepare = schedule.prepare
token_bucket.fits = schedule.fits
token_bucket.commit = schedule.commit
token_bucket.step = schedule.step
token_bucket.take_stored = schedule.take_stored
token_bucket.admit = schedule.admit
token_bucket.refund_taken = schedule.refund_taken
token_bucket.used = schedule.used
token_bucket.leaves = schedule.leaves
token_bucket.wait = schedule.wait
token_bucket.read = schedule.read
token_bucket.renew = schedule.renew
token_bucket.end_hold = schedule.end_hold
