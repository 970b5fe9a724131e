-- The algorithm of go-redis/redis_rate v10: GCRA in seconds as floating-point numbers, from 2017 on.
-- KEYS[1]: the key. ARGV: burst; permits; their period in microseconds; how many are asked for.
-- Replies with 1 if it admits, else 0, and the time in microseconds.
local burst, rate, period, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]) / 1000000, tonumber(ARGV[4])
local time = redis.call('TIME')
local at = string.format('%.0f', time[1] * 1000000 + time[2])
local now = (time[1] - 1483228800) + time[2] / 1000000
local interval = period / rate
local tat = math.max(tonumber(redis.call('GET', KEYS[1]) or now), now)
local new = tat + interval * cost
if (now - (new - interval * burst)) / interval < 0 then
  return {0, at}
end
redis.call('SET', KEYS[1], string.format('%.17g', new), 'EX', math.ceil(new - now))
return {1, at}
