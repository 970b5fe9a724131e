-- Decides a batch of operations, each atomically, by the twins above.
--
-- It replies with what it found, and the client, which has the same algorithms,
-- works out from it what each operation is told: of the fixed-size algorithms the
-- states as they were stored, of logs the outcomes.
--
-- A batch has two parts, whose states are distinct. In the first, operations name
-- states by their number and may be anything. In the second, all are takes of one
-- limit, and those on one state are sent together.
--
-- KEYS[1]  the settings, then for each group of the first part its hashes, cur and prev; for
--          each log its key; the keys with times of resets; for each group of the second
--          part its hashes
-- ARGV[1]  the time in microseconds since the epoch, or '' for the server's own;
--          it is given in tests only
-- ARGV[2]  the channel on which to announce what makes denials wrong
-- ARGV[3]  and on: see settings.lua
-- then     how many limits are described, then each by its parameters as they stand
--          in a generation's head ('' for a log), and a letter and numbers of 8 bytes:
--            t capacity debt life permits period             token bucket
--            l capacity debt life permits period             leaky bucket
--            f capacity debt life length                     fixed window
--            c capacity debt life edge edge edge edge        fixed window by the calendar
--            s capacity debt life window                     sliding window counter
--            p|z|x capacity debt life window interval counts sliding window log, as
--                                                        packed string, sorted set or stream
--          times are microseconds; life is the longest that a state matters;
--          permits:period is a rate in lowest terms; counts is 1 when denied requests
--          are counted
-- then     if all operations of the first part are takes or tries and none touches a
--          log or a calendar, another first part: the number of its groups; for each
--          the numbers of its limit and of its clients and their keys; and the
--          operations, each the number of states (1 byte) and for each its number, from
--          1 (2), and the permits (4)
-- else     if there is a first part: the number of its groups; for each the letter,
--          the number of clients, their keys, and the numbers of their limits (2 bytes
--          each, one if it is that of all); the number of logs, and for each the number
--          of its limit and the client's key; the number of states that have a key with the
--          time of their last reset, since they are of limits with leases, and the number
--          of each; and the operations, each a verb (take 0,
--          try 1, peek 2, reset 3, settle 4, release 5, lapse 6, share 7; 1 byte), 1 if
--          the growth of logs is asked for or 0 (1), the number of states (2), of a
--          release and a lapse the time of what was taken (8), and for each state its
--          number, from 1, in the order of the groups and then the logs (2), and the
--          permits (8)
-- then     groups of the second part until the end: the number of the limit and of the
--          clients, 1 if each client takes one permit once or 0, the clients' keys,
--          and with 0 for each client what it takes: n, or nxk for k times n, joined
--          by commas, or '' for nothing
--
-- Replies a string. If calendars' edges don't hold a time, nothing was carried out:
-- 1 and for each such state its number (4 bytes) and the time (8). Otherwise 0; the
-- time (8); the groups of the first part; the times of resets (8 each, 0 for none); for
-- each operation with logs 1 if it was
-- allowed or 0, and for each log 1 if it allows or 0, then 8 bytes each: remaining
-- permits; microseconds until a retry (-1 for never), until untouched; permits
-- applied; microseconds until remaining grows (0 if not asked for); the groups of the
-- second part; and how many takes and tries were allowed and permits shared (6). A
-- group is the heads of its generations, each behind its length (2), and for each
-- client its value, 255 and its value when that is of the generation before, or 254
-- for none.

local reply, said = { '\0', pack('>i8', now) }, 2
local function say(text)
  said = said + 1
  reply[said] = text
end

local function argument()
  at = at + 1
  return ARGV[at - 1]
end

local limits = {}
for i = 1, tonumber(argument()) do
  local text, numbers, limit = argument(), argument(), {}
  limit.kind = kinds[sub(numbers, 1, 1)]
  local x, y, z, u
  limit.capacity, limit.debt, limit.span, x, y, z, u = unpack_struct(limit.kind.numbers, numbers, 2)
  limit.life = limit.span + margin(limit.span)
  limit.kind.describe(limit, x, y, z, u)
  if text ~= '' then
    limit.set = parameters(limit.kind, text)
  end
  limits[i] = limit
end

local next_key = 2

-- load reads a group's clients, count of them from the next argument on, and says
-- what it found.
local function load(kind, count)
  local hash = fetch(kind, KEYS[next_key], KEYS[next_key + 1], at, at + count - 1)
  next_key = next_key + 2
  hash.first = at
  at = at + count
  local n = said
  local text = hash.loaded and hash.loaded.text or ''
  reply[n + 1] = pack('>I2', #text)
  reply[n + 2] = text
  text = hash.before and hash.before.text or ''
  reply[n + 3] = pack('>I2', #text)
  reply[n + 4] = text
  n = n + 4
  local values, aged = hash.values, hash.aged
  for i = 2, count + 1 do
    local value = values[i]
    if not value then
      value = '\254'
    elseif aged and aged[i] then
      n = n + 1
      reply[n] = '\255'
    end
    n = n + 1
    reply[n] = value
  end
  said = n
  return hash
end

local announced = {}
local function announce(client)
  announced[#announced + 1] = pack('>I2', #client) .. client
end

local allowed_takes = 0
