-- What all processes that share states have to know alike: the layout of the states, and the
-- epochs of policies. A policy's epoch is when all of its clients were last reset, in
-- microseconds, 0 for never. It is part of its states' keys, so what was before a reset is
-- not read again.
--
-- KEYS[1]  a hash with the fields layout, all (when all policies were last reset), and
--          :NAME (when that one was)
-- ARGV[3]  the layout that the process has
-- ARGV[4]  the number of policies, then the field of each, then the epoch of each, as the
--          process knows it
--
-- Replies STALE and carries nothing out if the layout or an epoch is another: then the
-- fields layout, all and those of the policies follow, each behind its length (2). What
-- the server has lost is written again.

local at = 5 + 2 * ARGV[4] -- the next argument
do
  local count = tonumber(ARGV[4])
  local settings = redis.call('HMGET', KEYS[1], 'layout', 'all', unpack(ARGV, 5, 4 + count))
  local stale = settings[1] and settings[1] ~= ARGV[3]
  local all = settings[2]
  for i = 1, count do
    local kept, known = settings[i + 2] or '0', ARGV[4 + count + i]
    if all or kept ~= known then
      kept, known = max(kept, all or 0), tonumber(known)
      stale = stale or kept > known
      if kept < known then
        redis.call('HSET', KEYS[1], ARGV[4 + i], ARGV[4 + count + i])
      end
    end
  end
  if stale then
    local reply = STALE
    for i = 1, count + 2 do
      local value = settings[i] or ''
      reply = reply .. struct.pack('>I2', #value) .. value
    end
    return reply
  end
  if not settings[1] then
    redis.call('HSET', KEYS[1], 'layout', ARGV[3])
  end
end
