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
--
-- The field with a - before it has the epochs of the last three hours, 1,000 at most: for as long the end of a hold may
-- ask whether one of them was before it expired (hold_verbs.lua).

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
local past, count = { epoch }, 1
for before in string.gmatch(redis.call('HGET', KEYS[1], '-' .. ARGV[4]) or '', '%d+') do
  if tonumber(before) + 10800000000 > now and count < 1000 then
    count = count + 1
    past[count] = before
  end
end
redis.call('HSET', KEYS[1], ARGV[4], epoch, '-' .. ARGV[4], table.concat(past, ' '))
redis.call('PUBLISH', ARGV[2], ARGV[3])
return epoch
