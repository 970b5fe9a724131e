-- Keeps a summary of each process, and returns those of all.
--
-- KEYS[1]  a hash: each process by its name; when it was written, in microseconds by the server's clock, a space, and the
--          summary, which is JSON
-- ARGV     the process's name; its summary, or "" to leave; for how long a summary holds, microseconds; 1 if the summaries of
--          all are wanted
-- reply    a JSON array of the summaries that hold, or an empty one
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[2] == '' then
	redis.call('HDEL', KEYS[1], ARGV[1])
else
	redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', now) .. ARGV[2])
	redis.call('PEXPIRE', KEYS[1], math.ceil(ARGV[3] / 1000))
end
if ARGV[4] ~= '1' then
	return '[]'
end
local all, found = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
	local written, summary = string.match(all[i + 1], '^(%d+) (.*)$')
	-- One that was written in the future is from before the clock was set back.
	if not written or math.abs(now - written) > tonumber(ARGV[3]) then
		redis.call('HDEL', KEYS[1], all[i])
	else
		found[#found + 1] = summary
	end
end
return '[' .. table.concat(found, ',') .. ']'
