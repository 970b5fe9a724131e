-- Counts the processes that share a store.
--
-- KEYS[1]  a sorted set: each process by its name, the score is when it was last heard
--          of, in microseconds by the server's clock
-- ARGV[1]  the time: see now.lua
-- ARGV[2]  the process's name
-- ARGV[3]  for how long it counts unless heard of again, microseconds
-- ARGV[4]  1, or 0 to leave
-- reply    how many processes there are, this one included unless it leaves, as text
if ARGV[4] == '1' then
	redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[2])
	redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[3] / 1000))
else
	redis.call('ZREM', KEYS[1], ARGV[2])
end
-- One that is heard of in the future is from before the clock was set back.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ARGV[3]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('(%.0f', now + ARGV[3]), '+inf')
return string.format('%d', redis.call('ZCARD', KEYS[1]))
