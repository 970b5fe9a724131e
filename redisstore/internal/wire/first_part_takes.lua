-- The first part, when all of its operations are takes and none touches a log or a
-- calendar: states are kept in three numbers, by their place.
local as, bs, cs, of, taken = {}, {}, {}, {}, {}
local groups, places = {}, 0
for i = 1, tonumber(argument()) do
  local hash, numbers = load_group()
  if meets_holds then
    return HOLDS
  end
  local limit, count = limits[unpack_struct('>I2', numbers)], hash.size
  local kind, own = limit.kind, limit.set
  local values, aged, loaded = hash.values, hash.aged, hash.loaded
  local mine = loaded and not kind.moves and tag_of(loaded, own)
  local state = {}
  groups[i], hash.limit, hash.places = hash, limit, places
  for j = 1, count do
    local value = values[j + 1]
    places = places + 1
    of[places] = limit
    if mine and value and #value == own.length and byte(value) == mine and not (aged and aged[j + 1]) then
      local a, b, c = unpack_struct(own.body, value, 2)
      as[places], bs[places], cs[places] = a + loaded.start, b, c
    else
      local signer = read_state(hash, j, state)
      kind.twin.adopt(state, limit, now)
      as[places], bs[places], cs[places] = kind.write(state, limit)
      if signer and signer ~= own then
        hash.foreign = hash.foreign or {}
        hash.foreign[j] = merged(kind, state, limit) and 'merged' or 'adopted'
      end
    end
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
        as[place], bs[place], cs[place], taken[place] = next_as[i], next_bs[i], next_cs[i], true
      end
    end
  end
  from = last
end

for _, hash in ipairs(groups) do
  local limit, clients, place = hash.limit, hash.first - 1, hash.places
  for j = 1, #hash.values - 1 do
    if taken[place + j] then
      write_numbers(hash, limit, ARGV[clients + j], as[place + j], bs[place + j], cs[place + j])
      if hash.foreign and hash.foreign[j] then
        announce(ARGV[clients + j])
        if hash.foreign[j] == 'merged' then
          mark_merged(hash, ARGV[clients + j])
        end
      end
    end
  end
  flush(hash)
end
