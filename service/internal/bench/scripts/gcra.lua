-- GCRA as redis-cell has it, in whole microseconds (redis-cell: nanoseconds): a permit takes period / permits, cut off.
-- KEYS[1]: the key. ARGV: burst; permits; their period in microseconds; how many are asked for.
-- Replies with 1 if it admits, else 0, and the time in microseconds.
local interval = math.floor(tonumber(ARGV[3]) / tonumber(ARGV[2]))
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local at = string.format('%.0f', now)
local new = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now) + interval * ARGV[4]
if now < new - interval * ARGV[1] then
  return {0, at}
end
redis.call('SET', KEYS[1], string.format('%.0f', new), 'PX', math.max(1, math.ceil((new - now) / 1000)))
return {1, at}
