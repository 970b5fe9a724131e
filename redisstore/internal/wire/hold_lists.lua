-- What is held of a client's state: the pieces of its holds, and the value that they stand in.
--
-- A state of which permits are held has, beside its three numbers:
--   held   how many permits; nil for none
--   live   how many holds
--   list   the pieces of the holds, one behind another, in the order in which they expire: the hold's
--          digest (8 bytes), when it expires (7), permits (6), 1 if an expiry charges them, and 2 for the
--          first of a hold (1), and where the permits come back to, from and to (7 each): a fixed window's
--          start and end, the start of a counter's, or the time of a log's entry
-- Its value is HELD, its writer's parameters, its three numbers, the writer's debt, held (8 bytes each),
-- live (4) and list; a log's list has a key of its own, as live (4) and list.

holds = {}

local HELD_NUMBERS, HELD_VALUE = '>i8i8i8i8i8I4', '>Bc0i8i8i8i8i8I4c0'
local PIECE, PIECE_BYTES, FLAGS = '>c8I7I6BI7I7', 36, 22

-- place_of finds where something of so many bytes that begins with a digest is among others.
local function place_of(list, digest, bytes)
  local at = 0
  repeat
    at = string.find(list, digest, at + 1, true)
  until not at or at % bytes == 1
  return at
end

-- last_expiry is when the last piece of a list expires.
local function last_expiry(list)
  local expires = unpack_struct('>I7', list, #list - PIECE_BYTES + 9)
  return expires
end

-- expiries are when the first and the last piece of a list expire.
function holds.expiries(list)
  local first = unpack_struct('>I7', list, 9)
  return first, #list == PIECE_BYTES and first or last_expiry(list)
end

-- insert puts the pieces of a hold where it expires.
local function insert(list, expires, pieces)
  if not list then
    return pieces
  elseif last_expiry(list) <= expires then -- most often
    return list .. pieces
  end
  local low, high = 0, #list / PIECE_BYTES - 1 -- so many pieces at least and at most expire before
  while low < high do
    local middle = floor((low + high) / 2)
    if unpack_struct('>I7', list, middle * PIECE_BYTES + 9) <= expires then
      low = middle + 1
    else
      high = middle
    end
  end
  low = low * PIECE_BYTES
  return sub(list, 1, low) .. pieces .. sub(list, low + 1)
end

-- read_value reads a value of which permits are held: its writer's parameters in text, its numbers, and what is held of it.
function holds.read_value(kind, value)
  local from = 2 + kind.bytes
  local a, b, c, debt, n, count, at = unpack_struct(HELD_NUMBERS, value, from)
  return sub(value, 2, from - 1), a, b, c, debt, n > 0 and n or nil, count, sub(value, at)
end

-- write_held writes a client's state of which permits are held, the last until an instant; without holds it would matter
-- for so long.
local function write_held(hash, limit, client, a, b, c, matters, held, live, list, last)
  if not hash.list then
    open(hash, limit)
  end
  local n = hash.count + 2
  hash.count, hash.list[n - 1] = n, client
  hash.list[n] = pack(HELD_VALUE, HELD, limit.set.text, a, b, c, limit.debt, held or 0, live, list)
  local life = (matters > limit.span and matters or limit.span) + last - now
  if life * 1.1 + 1000000 > hash.now.life and life + margin(life) > hash.now.life then -- margin is less
    hash.now.life, hash.renewed = life + margin(life), true
  end
end
