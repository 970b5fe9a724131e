-- Unlinks hashes in which no state matters any more, before they expire: a server that
-- lets a large one expire does nothing else meanwhile, and UNLINK frees it in the
-- background.
--
-- KEYS     pairs of hashes, cur and prev, which generations.lua describes
-- ARGV[1]  the time in microseconds since the epoch, or '' for the server's own;
--          it is given in tests only
-- ARGV[2]  for each pair 1 if it is of an earlier epoch, which nobody reads any more, else 0
--
-- Replies a string of numbers of 8 bytes: the time, and for each hash that is left the
-- time when none of its states matters any more, or 0 where none is left.

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local reply = { struct.pack('>i8', now) }
for i = 1, #KEYS do
  local head, dead = redis.call('HGET', KEYS[i], ''), 0
  if head and head ~= '' then
    local _, life, turn = struct.unpack('>i8i8i8', head)
    local pair = math.floor((i + 1) / 2)
    dead = turn + life
    if now >= dead or string.sub(ARGV[2], pair, pair) == '1' then
      redis.call('UNLINK', KEYS[i])
      dead = 0
    end
  end
  reply[i + 1] = struct.pack('>i8', dead)
end
return table.concat(reply)
