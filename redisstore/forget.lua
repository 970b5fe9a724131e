-- Removes states: whole hashes, and logs. What they held is freed in the background.
--
-- KEYS     hashes, cur and prev of each, then logs
-- ARGV[1]  how many of them are hashes
-- ARGV[2]  the channel, and
-- ARGV[3]  the announcement that the policy was forgotten, for others not to take hashes
--          that are removed for lost
--
-- Replies how many states they held, in text.

local hashes, logs, removed = {}, {}, 0
for i = 1, tonumber(ARGV[1]) do
  hashes[i] = KEYS[i]
  removed = removed + math.max(0, redis.call('HLEN', KEYS[i]) - 1) -- one field is the head
end
for i = #hashes + 1, #KEYS do
  logs[#logs + 1] = KEYS[i]
end
if hashes[1] then
  redis.call('UNLINK', unpack(hashes))
  redis.call('PUBLISH', ARGV[2], ARGV[3])
end
if logs[1] then
  removed = removed + redis.call('UNLINK', unpack(logs))
end
return string.format('%.0f', removed)
