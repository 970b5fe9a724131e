-- Reads versions, the newest first: as many as are asked for, or fewer once they are large.
--
-- KEYS[1]  the set, as in commit.lua
-- KEYS[2]  the versions
-- ARGV[1]  the largest number, or "+" for any
-- ARGV[2]  the most versions
--
-- Reply: strings, each as its length in bytes, a colon and itself: for each version its ID in the
-- stream and its JSON. Nothing without a head, whatever remained of others.

if redis.call('HEXISTS', KEYS[1], '@head') == 0 then
  return ''
end
-- enough is how many bytes are sent at once, but for the last version.
local enough = 1048576
local reply = {}
local function write(text)
  reply[#reply + 1] = #text .. ':'
  reply[#reply + 1] = text
end
local from, bytes = ARGV[1], 0
for _ = 1, tonumber(ARGV[2]) do
  local entry = redis.call('XREVRANGE', KEYS[2], from, '-', 'COUNT', 1)[1]
  if not entry then
    break
  end
  write(entry[1])
  write(entry[2][2])
  from, bytes = '(' .. entry[1], bytes + #entry[2][2]
  if bytes > enough then
    break
  end
end
return table.concat(reply)
