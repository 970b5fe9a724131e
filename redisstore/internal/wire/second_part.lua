-- The second part: a state is loaded, the takes on it carried out, and it is written.

-- take_each carries out what each client of a hash takes: what the arguments behind takes say, or one permit, so that
-- keep are left.
local function take_each(hash, limit, count, takes, keep)
  local kind, own = limit.kind, limit.set
  local adopt, step, take_stored, admit = kind.twin.adopt, kind.twin.step, kind.twin.take_stored, kind.twin.admit
  local values, aged, loaded, clients = hash.values, hash.aged, hash.loaded, hash.first - 1
  local mine = loaded and tag_of(loaded, own)
  local plain, state = not takes, {}
  for i = 1, count do
    local value, a, b, c = values[i + 1], nil, nil, nil
    local admitted = 0
    if plain and not value then
      a, b, c = 0, 0, 0
    elseif plain and #value == own.length and byte(value) == mine and not (aged and aged[i + 1]) then
      a, b, c = unpack_struct(own.body, value, 2)
      a = a + loaded.start
    end
    if a then -- most often: a state in numbers, which the limit itself wrote
      if step then
        a, b, c = step(limit, now, a, b, c, 1, keep)
      else
        a, b, c = take_stored(now, a, b, c, 1, limit.capacity - keep, limit.length, limit.step)
      end
      if a then
        admitted = 1
        write_numbers(hash, limit, ARGV[clients + i], a, b, c)
      end
    elseif (plain or ARGV[takes + i] ~= '') and not (value and #value > LONGEST) then -- else a script with holds.lua has to
      local signer = read_state(hash, i, state)
      adopt(state, limit, now)
      if plain then
        admitted = admit(state, limit, now, 1, keep, 1)
      else
        for n, k, kept in string.gmatch(ARGV[takes + i], '(%d+)x?(%d*)k?(%d*)') do
          admitted = admitted + admit(state, limit, now, tonumber(n), tonumber(kept) or 0, tonumber(k) or 1)
        end
      end
      if admitted > 0 then
        write_state(hash, limit, ARGV[clients + i], state)
        if signer and signer ~= own then
          announce(ARGV[clients + i])
        end
      end
    end
    allowed_takes = allowed_takes + admitted
  end
end

while at <= #ARGV do
  local limit, count, keep = limits[tonumber(argument())], tonumber(argument()), tonumber(argument())
  local hash, takes = load(limit.kind, count), nil
  if not keep then
    takes, at = at - 1, at + count
  end
  take_each(hash, limit, count, takes, keep)
  flush(hash)
end
