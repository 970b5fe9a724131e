-- Reads the infos of revisions, the newest first.
--
-- KEYS[1]  the revisions, as in put.lua
-- ARGV[1]  numbers below this one, "0" for any
-- ARGV[2]  how many at most
--
-- Reply: the infos, with a line feed after each.

local number = tonumber(string.match(redis.call('HGET', KEYS[1], 'head') or '', '^%d+') or 0)
local before = tonumber(ARGV[1])
if before > 0 and before <= number then
  number = before - 1
end
local infos = {}
while #infos < tonumber(ARGV[2]) do
  local info = redis.call('HGET', KEYS[1], string.format('%d:info', number))
  if not info then
    break
  end
  infos[#infos + 1] = info .. '\n'
  number = number - 1
end
return table.concat(infos)
