-- Exact integer arithmetic in Lua numbers, which are doubles: every value stays
-- below 2^53. Shared by the twins.

local floor = math.floor
local ceil = math.ceil
local max = math.max
local min = math.min

local EXACT = 2 ^ 53
local HORIZON = 315360000000000 -- 3650 days: how far a schedule may reach, in microseconds
local NEVER = -1                -- a wait that no time fulfils

-- muldiv returns floor(a * b / c) and the remainder. The operands are integers
-- with 0 <= a < 2^53, 0 <= b < 2^35, 0 < c < 2^45, and a quotient below 2^53.
local function muldiv(a, b, c)
  if a * b < EXACT then
    local product = a * b
    local quotient = floor(product / c)
    return quotient, product - quotient * c
  end
  local whole = floor(a / c)
  local part = a - whole * c
  -- part * b / c, b taken in digits of 7 bits from the top: remainder and part are below
  -- 2^45, so remainder * 128 + part * 127 is below 2^53.
  local quotient, remainder, left = 0, 0, b
  local digit = 268435456 -- 128^4
  while digit >= 1 do
    local value = floor(left / digit)
    left = left - value * digit
    remainder = remainder * 128 + part * value
    local carried = floor(remainder / c)
    remainder = remainder - carried * c
    quotient = quotient * 128 + carried
    digit = digit / 128
  end
  return whole * b + quotient, remainder
end

-- correct_waits makes the waits that an outcome has of a state's own run those of both, where it has two and the
-- operation of n permits changed nothing; wait is its twin's. See changed.go.
local function correct_waits(wait, state, limit, now, n, keep, out)
  if not state.runs then
    return
  elseif out.changed then
    state.runs = nil
    return
  end
  if not out.allowed and n <= limit.capacity - keep then
    out.retry = wait(state, limit, now, n + keep)
  end
  if out.reset > 0 and not state.list then
    out.reset = wait(state, limit, now, limit.capacity)
  end
end

-- growth is how long after now Remaining grows of a state of a twin, if no hold ends until then, and at how many permits
-- that count it does; most is that number, where it is known.
local function growth(twin, state, limit, now, keep, most)
  most = most or min(twin.used(state, limit, now), limit.capacity - keep) - 1
  if most < 0 then
    return 0
  elseif state.runs then
    return twin.wait(state, limit, now, limit.capacity - most), most
  end
  return twin.leaves(state, limit, now, most), most
end

-- clamp bounds n from below by 0 and from above by most; a negative most is 0.
local function clamp(n, most)
  return max(0, min(n, most))
end
