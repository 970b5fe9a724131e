-- Keeps a summary of each process, and returns those of all, and the open questions.
--
-- KEYS[1]  a hash: each process by its name; when it was written, in microseconds by the server's clock, a space, and the
--          summary, which is JSON; and the fields of question.lua, which no name of a process begins like
-- ARGV     the process's name; its summary, or "" to leave; for how long a summary and a question hold, microseconds; 1 if
--          the summaries of all are wanted
-- reply    a JSON object: all, the summaries that hold, or none; open, the questions by their IDs, each as a
--          string: one that is no JSON spoils no other
local time = redis.call('TIME')
local now, life = time[1] * 1000000 + time[2], tonumber(ARGV[3])
-- One that was written in the future is from before the clock was set back.
local function holds(written)
	return math.abs(now - tonumber(written)) <= life
end
if ARGV[2] == '' then
	redis.call('HDEL', KEYS[1], ARGV[1])
else
	redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', now) .. ARGV[2])
	redis.call('PEXPIRE', KEYS[1], math.ceil(life / 1000))
end
local lines, open, left = redis.call('HGET', KEYS[1], '?'), {}, ''
if lines then
	for line, id, written, question in string.gmatch(lines, '(\n(%w+) (%d+) ([^\n]*))') do
		if holds(written) then
			open[#open + 1], left = '"' .. id .. '":' .. cjson.encode(question), left .. line
		else
			redis.call('HDEL', KEYS[1], '!' .. id) -- the process that asked has ended
		end
	end
	if left == '' then
		redis.call('HDEL', KEYS[1], '?')
	elseif left ~= lines then
		redis.call('HSET', KEYS[1], '?', left)
	end
end
local all, found = {}, {}
if ARGV[4] == '1' then
	all = redis.call('HGETALL', KEYS[1])
end
for i = 1, #all, 2 do
	local written, summary = string.match(all[i + 1], '^(%d+) (.*)$')
	if written and holds(written) then
		found[#found + 1] = summary
	elseif not string.find(all[i], '^[?!]') then
		redis.call('HDEL', KEYS[1], all[i])
	end
end
return '{"all":[' .. table.concat(found, ',') .. '],"open":{' .. table.concat(open, ',') .. '}}'
