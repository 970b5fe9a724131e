-- States of fixed size in three numbers, by their place: those of the first part, when all of its operations are takes
-- (first_part_takes.lua), or of the usual kind on holds (first_part_holds.lua), and none touches a log or a calendar.
--   of                    a state's limit
--   news                  of one whose client is announced when it is written: MERGED of one that another limit wrote,
--                         if its counts can't be told apart any more, else 1
--   changed               of one that is to be written (numbers_save.lua)
--   held, live, lists     see hold_lists.lua; firsts and lasts: when a list's first and last piece expire
--   left                  of one that is left to first_part.lua: something has expired, or another limit wrote it
local as, bs, cs, of, news, changed = {}, {}, {}, {}, {}, {}
local held, live, lists, firsts, lasts, left = {}, {}, {}, {}, {}, {}
local groups, places, MERGED = {}, 0, 2
for i = 1, tonumber(argument()) do
  local hash, numbers = load_group()
  if meets_holds then
    return HOLDS
  end
  local values, aged, loaded, kind = hash.values, hash.aged, hash.loaded, hash.kind
  local limit, set, mine, window, same, state = nil, nil, nil, nil, #numbers == 2, {}
  groups[i], hash.places = hash, places
  for j = 1, hash.size do
    if j == 1 or not same then
      limit = limits[unpack_struct('>I2', numbers, 2 * j - 1)]
      set, window = limit.set, kind.moves and (limit.window or limit.length)
      mine = loaded and tag_of(loaded, set)
    end
    local p, value, a, b, c = places + 1, values[j + 1], nil, nil, nil
    places, of[p] = p, limit
    if value and #value == set.length and byte(value) == mine and not (aged and aged[j + 1]) then
      a, b, c = unpack_struct(set.body, value, 2) -- most often
      a = a + loaded.start
    elseif value and #value > LONGEST then
      local writer, debt
      writer, a, b, c, debt, held[p], live[p], lists[p] = holds.read_value(kind, value)
      firsts[p], lasts[p] = holds.expiries(lists[p])
      left[p] = writer ~= set.text or debt ~= limit.debt or firsts[p] <= now
    end
    if not a or window and not (a <= now and now < a + window and (kind.merges or b == 0 and c > 0)) then
      if a then
        kind.read(state, set, a, b, c)
      else
        local signer = read_state(hash, j, state)
        if signer and signer ~= set then
          news[p], left[p] = merged(kind, state, limit) and MERGED or 1, holds
        end
      end
      if not left[p] then
        kind.twin.adopt(state, limit, now)
        a, b, c = kind.write(state, limit)
      end
    end
    as[p], bs[p], cs[p] = a, b, c
  end
end
