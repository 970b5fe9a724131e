-- The time in microseconds since the epoch: ARGV[1], which tests give, or if that is '' the server's own.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
