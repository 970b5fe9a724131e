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

-- place_of finds where something of so many bytes that begins with a digest is among others, which begin at from or at 1.
local function place_of(list, digest, bytes, from)
  from = from or 1
  local at = from - 1
  repeat
    at = string.find(list, digest, at + 1, true)
  until not at or (at - from) % bytes == 0
  return at
end

-- last_expiry is when the last piece of a list expires.
local function last_expiry(list)
  local expires = unpack_struct('>I7', list, #list - PIECE_BYTES + 9)
  return expires
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
