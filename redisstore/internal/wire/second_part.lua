-- The second part: a state is loaded, the takes on it carried out, and it is written.

-- take_each carries out what each client of a hash takes: what the arguments behind takes say, or one permit, so that
-- keep are left.
local function take_each(hash, limit, count, takes, keep)
  local kind, own = limit.kind, limit.set
  local adopt, step, admit = kind.twin.adopt, kind.twin.step, kind.twin.admit
  local values, aged, loaded, clients = hash.values, hash.aged, hash.loaded, hash.first - 1
  local mine = loaded and tag_of(loaded, own)
  local quick = mine and not takes and not kind.moves
  local state = {}
  for i = 1, count do
    local value = values[i + 1]
    local admitted, signer = 0, nil
    if quick and value and #value == own.length and byte(value) == mine and not (aged and aged[i + 1]) then
      -- Most often: a bucket's state that the limit itself wrote.
      local last, us, frac = unpack_struct(own.body, value, 2)
      last, us, frac = step(limit, now, last + loaded.start, us, frac, 1, keep)
      if last then
        admitted = 1
        write_numbers(hash, limit, ARGV[clients + i], last, us, frac)
      end
    elseif value and #value > LONGEST then
      admitted = 0 -- a script with holds.lua has to
    elseif not takes or ARGV[takes + i] ~= '' then
      signer = read_state(hash, i, state)
      if kind.moves or signer ~= own or not signer then
        adopt(state, limit, now)
      end
      if not takes then
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
