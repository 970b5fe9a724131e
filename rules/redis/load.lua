-- Reads a page of the rules.
--
-- KEYS[1]  the set, as in commit.lua
-- ARGV[1]  the page: "0" for the first one, then what the reply to the one before says
-- ARGV[2]  about how many rules it has
--
-- Reply: strings, each as its length in bytes, a colon and itself: the head, "" for none; how many
-- rules there are; the next page, "0" behind the last one; then each rule's ID and JSON. A
-- rule may come again.

local set = KEYS[1]
local head = redis.call('HGET', set, '@head')
if not head then
  return '0:1:01:0'
end
local page = redis.call('HSCAN', set, ARGV[1], 'COUNT', ARGV[2])
local reply = {}
local function write(text)
  reply[#reply + 1] = #text .. ':'
  reply[#reply + 1] = text
end
write(head)
write(string.format('%d', redis.call('HLEN', set) - 1 - redis.call('HEXISTS', set, '@bytes')))
write(page[1])
local fields = page[2]
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 1) ~= '@' then
    write(fields[i])
    write(fields[i + 1])
  end
end
return table.concat(reply)
