-- A fixed window by INCR and EXPIRE, which starts with a key's first request and counts the denied, too.
-- KEYS[1]: the key. ARGV: the limit; permits; their period in microseconds; how many are asked for. The window is the
-- time in which the limit refills.
-- Replies with 1 if it admits, else 0, and the time in microseconds.
local count = redis.call('INCRBY', KEYS[1], ARGV[4])
if count == tonumber(ARGV[4]) then
  redis.call('PEXPIRE', KEYS[1], math.max(1, math.floor(ARGV[1] * ARGV[3] / ARGV[2] / 1000)))
end
local time = redis.call('TIME')
return {count <= tonumber(ARGV[1]) and 1 or 0, string.format('%.0f', time[1] * 1000000 + time[2])}
