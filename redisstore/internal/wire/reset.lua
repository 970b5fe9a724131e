-- Resets all clients of a policy, or of all policies, by a later epoch: see settings.lua.
--
-- KEYS[1]  the settings
-- ARGV[1]  the time: see now.lua
-- ARGV[2]  the channel, and
-- ARGV[3]  the announcement
-- ARGV[4]  the field: all or :NAME
--
-- Replies the new epoch, in text. It is above all before it that count for the policy, and
-- after the time of everything that was decided before it.

local epoch, earlier = now, redis.call('HMGET', KEYS[1], 'all', ARGV[4])
if ARGV[4] == 'all' then
  local settings = redis.call('HGETALL', KEYS[1])
  for i = 2, #settings, 2 do
    earlier[#earlier + 1] = tonumber(settings[i]) or 0 -- the layout is no number
  end
end
for i = 1, #earlier do
  epoch = math.max(epoch, earlier[i] or 0)
end
epoch = string.format('%.0f', epoch + 1)
redis.call('HSET', KEYS[1], ARGV[4], epoch)
redis.call('PUBLISH', ARGV[2], ARGV[3])
return epoch
