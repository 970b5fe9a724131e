-- Reads a revision.
--
-- KEYS[1]  the revisions, as in put.lua
-- ARGV[1]  its number, "0" for the newest
--
-- Reply: its info, a line feed, and its rules, compressed. Nothing if it is not kept.

local number = ARGV[1]
if number == '0' then
  number = string.match(redis.call('HGET', KEYS[1], 'head') or '', '^%d+')
  if not number then
    return ''
  end
end
local fields = redis.call('HMGET', KEYS[1], number .. ':info', number)
if not fields[1] or not fields[2] then
  return ''
end
return fields[1] .. '\n' .. fields[2]
