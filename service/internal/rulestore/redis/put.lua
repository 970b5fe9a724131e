-- Makes a revision of the rules the newest: all of it, or nothing.
--
-- KEYS[1]  the revisions: a hash. `head` is "NUMBER MICROSECONDS" of the newest, `bytes` the size of all
--          values; for each number N, `N` is its rules, compressed, and `N:info` is JSON without rules
-- ARGV[1]  the head that has to be there, "" for none
-- ARGV[2]  the revision's number
-- ARGV[3]  its head
-- ARGV[4]  its info
-- ARGV[5]  its rules
-- ARGV[6]  how many revisions are kept at most
-- ARGV[7]  how many bytes their values have at most, unless there is but one
-- ARGV[8]  the channel on which the head is published
--
-- Reply: "put", or "conflict" if another revision is the newest, one of the same number too.

local key, number = KEYS[1], ARGV[2]
local head = redis.call('HGET', key, 'head')
if (head or '') ~= ARGV[1] then
  return 'conflict'
end
local bytes = #ARGV[5]
if head then
  bytes = bytes + (tonumber(redis.call('HGET', key, 'bytes')) or 0)
end
-- The only write that counts. What Redis may refuse, it refuses here; nothing fails after it.
redis.call('HSET', key, 'head', ARGV[3], 'bytes', string.format('%d', bytes), number, ARGV[5], number .. ':info', ARGV[4])

-- The oldest revision: numbers have no gaps, and each has two fields.
local count = (redis.call('HLEN', key) - 2) / 2
local oldest = tonumber(number) - count + 1
local kept, room, trimmed = tonumber(ARGV[6]), tonumber(ARGV[7]), false
while count > kept or (bytes > room and count > 1) do
  local field = string.format('%d', oldest)
  local size, deleted = redis.pcall('HSTRLEN', key, field), redis.pcall('HDEL', key, field, field .. ':info')
  if type(size) == 'table' or type(deleted) == 'table' then
    break -- this user may not
  end
  bytes = bytes - size
  count, oldest, trimmed = count - 1, oldest + 1, true
end
if trimmed then
  redis.pcall('HSET', key, 'bytes', string.format('%d', bytes))
end
redis.pcall('PUBLISH', ARGV[8], ARGV[3]) -- processes that miss it ask for the head
return 'put'
