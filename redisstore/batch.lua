-- Decides a batch of operations, each atomically, by the twins above.
--
-- It replies with what it found, and the client, which has the same algorithms,
-- works out from it what each operation is told: of the fixed-size algorithms the
-- states as they were stored, of logs the outcomes.
--
-- The first part is operations of any kind on states by their number, or (first_part_takes.lua) takes and
-- tries alone of neither logs nor calendars, or (first_part_holds.lua) the usual operations on holds. The second part is takes
-- of one limit each, those on one state together. Their states are distinct. Letters, verbs, tags and replies are in
-- protocol.go; N is a number in text. A batch with other operations on holds, or of states of which permits are held, has a
-- first part alone, and holds.lua, and is told all outcomes.
--
-- KEYS  settings; cur prev of each group of the first part; each log, with holds the list of its holds behind it;
--       each reset marker; with holds cur prev of the ids; cur prev of each group of the second part
-- ARGV  time ('' for the server's) and the channel for announcements; settings.lua's arguments;
--       N, and that many limits: parameters ('' for a log), letter and limitNumbers
--       first part, if there is one: N groups: N clients, each, limit numbers (>I2 each, one if all
--         have the same); and if it is mixed (first_part.lua) N logs: limit N, client; N markers: state N;
--         with holds load_ids'; operations, joined: >BBI2 verb, growth (1 or 0, 2 more with ways), states; refund and return_lease
--         >i8 time taken, reserve, commit and cancel >I2 their id's number; for each state >I2i8I4 its number
--         (groups, then logs, from 1), permits, and >I4 how many are kept; with ways a byte for each state, its way
--       second part, until the end, groups: limit N, N clients, N how many are kept if each takes 1 permit once, or '',
--         each client; with '' for each 'n' or 'nxk' (k times n), with 'kN' behind if N are kept, joined by commas, or ''
-- reply DECIDED, >i8 time; groups of the first part; >i8 each marker's time, 0 for none; groups of the
--         second part; for each operation with logs >B allowed, and for each log, with holds for each
--         limit, >Bi8i8i8i8i8i8 allowed (2 more: bound to its way), remaining, retry (-1: never), reset, delay, applied, growth; with holds
--         before an operation on an id >BBi8i8 (hold_verbs.lua), and of a bulk >i8 admitted; by first_part_holds.lua for
--         each limit what it has of the state instead, and for an operation that it leaves nothing; >I6 admitted takes
--       a group: the heads of cur and prev, each behind its length >I2; each client's value,
--         PREV and its value, NONE, or HELD alone: permits of it are held, and nothing was done with it
-- or    HOLDS: permits of a state of the first part are held, and the script is without holds.lua
-- or    ASKS and for each state >I4i8 its number, the time that its calendar's windows have to hold

local reply, said = { DECIDED, pack('>i8', now) }, 2
local function say(text)
  said = said + 1
  reply[said] = text
end

-- wayward returns the ways of an operation's states, which stand in a list of operations, as numbers.
local function wayward(list, from, count)
  return { byte(list, from, from + count - 1) }
end

-- choose marks the states that an operation with ways charges, of those that admit, and returns whether it is admitted:
-- Choose of way.go.
local function choose(ways, admits, chosen)
  local allowed, i = true, 1
  while i <= #ways do
    local way = ways[i]
    if way == MUST or way == ASIDE then
      chosen[i] = way == MUST and admits[i]
      allowed = allowed and (way == ASIDE or admits[i])
      i = i + 1
    else
      local found = false
      repeat
        local from, full = i, not found
        repeat
          full = full and admits[i]
          i = i + 1
        until ways[i] ~= WITH
        for j = from, i - 1 do
          chosen[j] = full
        end
        found = found or full
      until ways[i] ~= ELSE
      allowed = allowed and found
    end
  end
  return allowed
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
  local hash = fetch(kind, KEYS[next_key], KEYS[next_key + 1], at, at + count - 1)
  next_key = next_key + 2
  hash.first = at
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

local announced = {}
local function announce(client)
  announced[#announced + 1] = pack('>I2', #client) .. client
end

local allowed_takes = 0
