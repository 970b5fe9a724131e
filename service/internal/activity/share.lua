-- Keeps a summary of each process, and returns those of all, and the open questions.
--
-- KEYS[1]  a hash: each process by its name; when it was written, in microseconds by the server's clock, a space, and the
--          summary, which is JSON; ?ended, when a process ended last; and the fields of question.lua, which no name of a
--          process begins like
-- ARGV     the process's name; its summary, or "" to leave; for how long a summary and a question hold, microseconds; 1 if
--          the summaries of all are wanted
-- reply    a JSON object: all, the summaries that hold, or none; open, the questions by their IDs, each of both as a
--          string: one that is no JSON spoils no other; ended, when a process ended last, as far as is known, or 0
local time = redis.call('TIME')
local now, life = time[1] * 1000000 + time[2], tonumber(ARGV[3])
-- One that was written in the future is from before the clock was set back.
local function holds(written)
	return math.abs(now - tonumber(written)) <= life
end
local ended = tonumber(redis.call('HGET', KEYS[1], '?ended') or '0') or 0
-- What a process knew is lost with it.
local function ends(at)
	ended = math.max(ended, math.min(at, now))
	redis.call('HSET', KEYS[1], '?ended', string.format('%.0f', ended))
end
if ARGV[2] == '' then
	if redis.call('HDEL', KEYS[1], ARGV[1]) == 1 and redis.call('HGETALL', KEYS[1])[1] then
		ends(now)
	end
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
		found[#found + 1] = cjson.encode(summary)
	elseif not string.find(all[i], '^[?!]') then
		redis.call('HDEL', KEYS[1], all[i])
		ends(tonumber(written or now) + life)
	end
end
return '{"all":[' .. table.concat(found, ',') .. '],"open":{' .. table.concat(open, ',') .. '},"ended":' .. string.format('%.0f', ended) .. '}'
