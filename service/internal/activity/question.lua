-- Asks all processes something, and keeps their answers until the one that asked has read them.
--
-- KEYS[1]  the hash of share.lua. Its field ? has the open questions: a line feed, the ID, when it was asked, in
--          microseconds by the server's clock, and the question, which is JSON, of each. The field !ID has the answers to one:
--          a line feed and the answer, which is JSON, of each.
-- ARGV     what to do; the question's ID, of letters and digits; and
--          ask     the question, how many may be open, and for how long the hash is kept after it, milliseconds
--          answer  an answer, which is dropped when the question is not open
--          read    nothing: the answers go
--          end     nothing: the question and its answers go
-- reply    of ask busy if too many are open, of read the answers since the read before, else nothing
local verb, id = ARGV[1], ARGV[2]
local open = redis.call('HGET', KEYS[1], '?') or ''
if verb == 'ask' then
	local _, questions = string.gsub(open, '\n', '')
	if questions >= tonumber(ARGV[4]) then
		return 'busy'
	end
	local time = redis.call('TIME')
	local at = string.format('%.0f', time[1] * 1000000 + time[2])
	redis.call('HSET', KEYS[1], '?', open .. '\n' .. id .. ' ' .. at .. ' ' .. ARGV[3])
	redis.call('PEXPIRE', KEYS[1], ARGV[5])
elseif verb == 'answer' then
	if string.find(open, '\n' .. id .. ' ', 1, true) then
		redis.call('HSET', KEYS[1], '!' .. id, (redis.call('HGET', KEYS[1], '!' .. id) or '') .. '\n' .. ARGV[3])
	end
elseif verb == 'read' then
	local answers = redis.call('HGET', KEYS[1], '!' .. id) or ''
	redis.call('HDEL', KEYS[1], '!' .. id)
	return answers
else
	open = string.gsub(open, '\n' .. id .. ' [^\n]*', '')
	redis.call('HDEL', KEYS[1], '!' .. id)
	if open == '' then
		redis.call('HDEL', KEYS[1], '?')
	else
		redis.call('HSET', KEYS[1], '?', open)
	end
end
return ''
