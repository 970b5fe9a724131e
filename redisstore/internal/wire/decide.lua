-- How an operation is decided: all of its limits are asked, those that are to be are charged. Package decide is the
-- same in Go.
--
-- Each limit of an operation with groups of alternatives has the number of its way: 0 of one that has to admit; else
-- PER_GROUP x its group, from 1, + its way, from 0, + MAX_WAYS in a group that may charge nothing; ASIDE of one that an
-- operation on a hold passes over.

-- ways_of returns the numbers of an operation's limits, which stand in a list of operations.
local function ways_of(list, from, count)
  local ways = {}
  for i = 1, count do
    ways[i] = 256 * byte(list, from + 2 * i - 2) + byte(list, from + 2 * i - 1)
  end
  return ways
end

-- is_in reports whether a number is of a group.
local function is_in(group, way) return way ~= nil and floor(way / PER_GROUP) == group end

-- choose marks the limits that an operation charges, of those that admit, and returns whether it is admitted.
local function choose(ways, admits, chosen)
  local allowed, i = true, 1
  while i <= #ways do
    local way = ways[i]
    if way == 0 or way == ASIDE then
      chosen[i] = way == 0 and admits[i]
      allowed = allowed and (way == ASIDE or admits[i])
      i = i + 1
    else
      local group, found = floor(way / PER_GROUP), false
      repeat
        local from, number, full = i, ways[i], not found
        repeat
          full = full and admits[i]
          i = i + 1
        until ways[i] ~= number
        for j = from, i - 1 do
          chosen[j] = full
        end
        found = found or full
      until not is_in(group, ways[i])
      allowed = allowed and (found or way % PER_GROUP >= MAX_WAYS)
    end
  end
  return allowed
end

-- decide asks the limits of an operation and charges those that are to be, if it is admitted: ask(i) reports whether
-- limit i admits, and charge(i) takes of it. Without ways a limit that denies ends the asking, unless all are to be asked. It
-- returns whether the operation is admitted, and which limits are chosen, nil without ways.
local function decide(count, ways, all, ask, charge)
  local allowed, admits, chosen = true, ways and {}, ways and {}
  for i = 1, count do
    local admits_it = ask(i)
    if ways then
      admits[i] = admits_it
    elseif not admits_it then
      allowed = false
      if not all then
        return false
      end
    end
  end
  if ways then
    allowed = choose(ways, admits, chosen)
  end
  for i = 1, allowed and charge and count or 0 do
    if not ways or chosen[i] then
      charge(i)
    end
  end
  return allowed, chosen
end

