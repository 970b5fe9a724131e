-- The first part, when all of its operations are takes of states in numbers (numbers.lua).
-- This is decide of decide.lua, written out: a call for each limit, and names from outside of a function, would be a tenth
-- of the script's time.
local list, from = argument(), 1
local next_as, next_bs, next_cs, number, permits, keep = {}, {}, {}, {}, nil, nil
local fit, chosen = {}, {}
while from <= #list do
  local _, growth, count = unpack_struct('>BBI2', list, from)
  local last = from + 4 + 14 * count
  local ways = growth > 1 and ways_of(list, last, count)
  from = from + 4
  local admits = true
  for i = 1, count do
    local place
    place, permits, keep, from = unpack_struct('>I2i8I4', list, from)
    local limit = of[place]
    local a, b, c = limit.kind.twin.step(limit, now, as[place], bs[place], cs[place], permits, keep)
    if not a and not ways then
      admits = false
      break
    end
    number[i], next_as[i], next_bs[i], next_cs[i], fit[i] = place, a, b, c, a
  end
  if ways then
    admits, last = choose(ways, fit, chosen), last + 2 * count
  end
  if admits then
    allowed_takes = allowed_takes + 1
    for i = 1, count do
      if not ways or chosen[i] then
        local place = number[i]
        as[place], bs[place], cs[place], changed[place] = next_as[i], next_bs[i], next_cs[i], true
      end
    end
  end
  from = last
end
