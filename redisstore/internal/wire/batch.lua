-- Decides a batch of operations, each atomically, by the twins above.
--
-- It replies with what it found, and the client, which has the same algorithms,
-- works out from it what each operation is told: of the fixed-size algorithms the
-- states as they were stored, of logs the outcomes.
--
-- The first part is operations of any kind on states by their number (first_part.lua), or takes and tries alone of
-- neither logs nor calendars (first_part_takes.lua), or the usual operations on holds (first_part_holds.lua). The
-- second part is takes of one limit each, those on one state together. The states of the two are distinct. A batch with
-- other operations on holds, or of states of which permits are held, has a first part alone, and holds.lua ("with
-- holds" below), and is told all outcomes. Letters, verbs, tags and replies are in protocol.go. N is a number in text;
-- >I2 and the like are formats of struct.pack, big-endian.
--
-- KEYS, in this order
--   settings                                  1
--   cur, prev                                 2 for each group of the first part
--   log                                       1 for each log; with holds the list of its holds behind it
--   reset marker                              1 for each
--   cur, prev of the ids                      2 with holds
--   cur, prev                                 2 for each group of the second part
--
-- ARGV, in this order
--   time                                      microseconds, or '' for the server's clock
--   channel                                   for announcements
--   settings                                  as settings.lua has them
--   N, then N limits, each
--     parameters                              as a generation's head has them, '' for a log
--     letter and numbers                      limitNumbers of protocol.go, 8 bytes each
--   the first part, if there is one:
--   N, then N groups, each
--     N, then N clients
--     limit numbers                           >I2 each; one if all have the same
--   the next three only if it is mixed (first_part.lua):
--     N, then N logs: limit N, client
--     N, then N markers: state N
--     ids                                     with holds, as ids.by_field reads them, and what is asked of each (GIVEN)
--   operations, joined, each
--     >B verb, >B growth, >I2 states          growth: 1 or 0, and 2 more with groups
--     >i8 time taken                          of a refund and a return_lease
--     >I2 number of its id                    of a reserve, a commit, a cancel and a drop
--     >I2i8I4 for each state                  its number (groups, then logs, from 1), permits, how many are kept
--     >I2 for each state                      with groups: its way
--   the second part, until the end, groups, each
--     limit N; N clients
--     N or ''                                 how many are kept, if each client takes 1 permit once
--     client, each
--     takes, each, with ''                    n or nxk (k times n), with kN behind if N are kept, joined by commas,
--                                             or '' for none
--
-- Reply, one string
--   DECIDED                                   one byte, and >i8 the time; then
--   groups of the first part                  each as below
--   >i8 for each reset marker                 its time, 0 for none
--   groups of the second part
--   for each operation with logs, or with holds for each
--     >BBi8i8                                 of one on an id (hold_verbs.lua)
--     >B allowed                              of any other
--     >Bi8i8i8i8i8i8                          for each log, with holds for each limit: allowed (2 more: bound to its
--                                             way), remaining, retry (-1: never), reset, delay, applied, growth
--     >i8 admitted                            of a bulk
--     by first_part_holds.lua for each limit what it has of the state instead, and for an operation that it leaves nothing
--   >I6                                       admitted takes
--   a group is
--     >I2 length and head of cur, then of prev
--     a value for each client                 of cur; PREV and the value of prev; NONE; or HELD alone: permits of it are
--                                             held, and nothing was done with it
--   HOLDS alone                               permits of a state of the first part are held, and the script is without
--                                             holds.lua; nothing was done
--   ASKS, and >I4i8 for each state            its number, and the time that its calendar's windows have to hold

local reply, said = { DECIDED, pack('>i8', now) }, 2
local function say(text)
  said = said + 1
  reply[said] = text
end

-- What the script answers by itself.
local answers, answered = {}, 0
local function answer(text)
  answered = answered + 1
  answers[answered] = text
end

local function argument()
  at = at + 1
  return ARGV[at - 1]
end

local limits = {}
for i = 1, tonumber(argument()) do
  local text, numbers, limit = argument(), argument(), {}
  local letter = sub(numbers, 1, 1)
  limit.kind = kinds[letter]
  local x, y, z, u
  limit.capacity, limit.debt, limit.span, x, y, z, u = unpack_struct(formats[letter], numbers, 2)
  limit.life = limit.span + margin(limit.span)
  limit.kind.describe(limit, x, y, z, u)
  if text ~= '' then
    limit.set = parameters(limit.kind, text)
  end
  limits[i] = limit
end

local next_key = 2
local meets_holds = false -- whether permits of a state are held that was loaded
local LONGEST = 42        -- the value of a state none of whose permits are held
local IS_HELD = string.char(HELD)

-- load reads a group's clients, count of them from the next argument on, and says
-- what it found, unless the script answers the operations itself.
local function load(kind, count, answers_itself)
  local hash = fetch(kind, KEYS[next_key], KEYS[next_key + 1], ARGV, at, at + count - 1)
  next_key = next_key + 2
  at = at + count
  if answers_itself then
    return hash
  end
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
      value = NONE
    elseif #value > LONGEST then
      value, meets_holds = IS_HELD, true
    elseif aged and aged[i] then
      n = n + 1
      reply[n] = PREV
    end
    n = n + 1
    reply[n] = value
  end
  said = n
  return hash
end

-- load_group reads a group of the first part, and returns the numbers of its limits, too.
local function load_group()
  local count = tonumber(argument())
  local numbers = ARGV[at + count]
  local hash = load(limits[unpack_struct('>I2', numbers)].kind, count, holds)
  hash.size, at = count, at + 1
  return hash, numbers
end

local announced, lengths = { count = 0 }, {} -- texts of lengths, which are few
local function announce(client)
  local n, length = announced.count, lengths[#client]
  if not length then
    length = pack('>I2', #client)
    lengths[#client] = length
  end
  announced[n + 1], announced[n + 2], announced.count = length, client, n + 2
end

local allowed_takes = 0
