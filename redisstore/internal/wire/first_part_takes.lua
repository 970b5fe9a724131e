-- The first part, when all of its operations are takes, and none touches a log or a calendar. States are three numbers, by
-- their place:
--   of                    a state's limit
--   news                  of one whose client is announced when it is written: MERGED of one that another limit wrote,
--                         if its counts can't be told apart any more, else 1
--   changed               of one that is to be written
local as, bs, cs, of, news, changed = {}, {}, {}, {}, {}, {}
local groups, places, MERGED = {}, 0, 2
for i = 1, tonumber(argument()) do
  local hash, numbers = load_group()
  if meets_holds then
    return HOLDS
  end
  local values, aged, loaded, kind = hash.values, hash.aged, hash.loaded, hash.kind
  local limit, set, mine, same, state = nil, nil, nil, #numbers == 2, {}
  groups[i], hash.places = hash, places
  for j = 1, hash.size do
    if j == 1 or not same then
      limit = limits[unpack_struct('>I2', numbers, 2 * j - 1)]
      set = limit.set
      mine = loaded and tag_of(loaded, set)
    end
    local p, value, a, b, c = places + 1, values[j + 1], 0, 0, 0
    places, of[p] = p, limit
    if value and #value == set.length and byte(value) == mine and not (aged and aged[j + 1]) then
      a, b, c = unpack_struct(set.body, value, 2) -- most often
      a = a + loaded.start
    elseif value then
      if read_state(hash, j, state) ~= set then
        news[p] = merged(kind, state, limit) and MERGED or 1
      end
      kind.twin.adopt(state, limit, now)
      a, b, c = kind.write(state, limit)
    end
    as[p], bs[p], cs[p] = a, b, c
  end
end

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
    local place, a, b, c
    place, permits, keep, from = unpack_struct('>I2i8I4', list, from)
    local limit = of[place]
    local twin = limit.kind.twin
    if twin.step then
      a, b, c = twin.step(limit, now, as[place], bs[place], cs[place], permits, keep)
    else
      a, b, c = twin.take_stored(
        now, as[place], bs[place], cs[place], permits, limit.capacity - keep, limit.length, limit.step
      )
    end
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

for _, hash in ipairs(groups) do
  local before, first = hash.places, hash.first - 1
  for j = 1, hash.size do
    local p = before + j
    if changed[p] then
      local client = ARGV[first + j]
      write_numbers(hash, of[p], client, as[p], bs[p], cs[p])
      if news[p] then
        announce(client)
        if news[p] == MERGED then
          mark_merged(hash, client)
        end
      end
    end
  end
  flush(hash)
end
