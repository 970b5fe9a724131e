-- Makes a version of the rules the newest: all of it, or nothing.
--
-- KEYS[1]  the set: a hash of the rules by ID, of the head, "NUMBER MICROSECONDS", by @head, and of
--          how large the versions are together, in bytes, by @bytes
-- KEYS[2]  the versions: a stream of which each ID is NUMBER-0
-- ARGV[1]  the head that has to be there, "" for none
-- ARGV[2]  the version's number
-- ARGV[3]  its head
-- ARGV[4]  the version as JSON
-- ARGV[5]  how many versions are kept
-- ARGV[6]  how large they are together at most, unless there is but one
-- ARGV[7]  the channel on which the head is published
-- ARGV[8]  n, how many rules are put
-- ARGV[9], ...  n times a rule's ID and its JSON; then the IDs of those that are deleted
--
-- Reply: "made", or "conflict" if another version is the newest, one of the same number too.

local set, versions = KEYS[1], KEYS[2]
local head = redis.call('HGET', set, '@head')
if (head or '') ~= ARGV[1] then
  return 'conflict'
end
redis.call('XLEN', versions) -- fails for a key of another type

-- Nothing may fail once something is written. What the server refuses, with a full memory or as a
-- replica, it refuses with the first write; what it does not allow this user it says before.
if redis.acl_check_cmd then -- since Redis 7
  for _, command in ipairs({ { 'HSET', set, 'a', 'b' }, { 'HDEL', set, 'a' }, { 'UNLINK', versions }, { 'XADD', versions, '1-0', 'v', 'b' }, { 'XRANGE', versions, '-', '+' }, { 'XTRIM', versions, 'MAXLEN', '1' } }) do
    if not redis.acl_check_cmd(unpack(command)) then
      return redis.error_reply('NOPERM this user has no permissions to run ' .. command[1])
    end
  end
end
if not head then
  redis.call('HSET', set, '@head', ARGV[3])
  redis.call('UNLINK', set, versions) -- what remained of others
end
redis.call('XADD', versions, ARGV[2] .. '-0', 'v', ARGV[4])
local bytes = (tonumber(redis.call('HGET', set, '@bytes')) or 0) + #ARGV[4]
local count, kept, room = redis.call('XLEN', versions), tonumber(ARGV[5]), tonumber(ARGV[6])
while count > kept or bytes > room and count > 1 do
  local oldest = redis.call('XRANGE', versions, '-', '+', 'COUNT', 1)[1]
  bytes, count = bytes - #oldest[2][2], count - 1
  redis.call('XTRIM', versions, 'MAXLEN', count)
end
redis.call('HSET', set, '@head', ARGV[3], '@bytes', string.format('%d', bytes))

-- step is how many values are handed over in one call, an even number; the stack has not
-- room for all.
local step = 1000
local function each(command, first, last)
  for at = first, last, step do
    redis.call(command, set, unpack(ARGV, at, math.min(at + step - 1, last)))
  end
end
local put = 8 + 2 * tonumber(ARGV[8])
each('HSET', 9, put)
each('HDEL', put + 1, #ARGV)

redis.pcall('PUBLISH', ARGV[7], ARGV[3]) -- who may not is heard of later
return 'made'
