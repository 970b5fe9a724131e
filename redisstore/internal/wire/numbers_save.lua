-- Writes what has changed of the states in numbers.
for _, hash in ipairs(groups) do
  local before, first = hash.places, hash.first - 1
  for j = 1, hash.size do
    local p = before + j
    if changed[p] then
      local limit, client, b = of[p], ARGV[first + j], bs[p]
      if holds and lists[p] then
        local matters = limit.kind.twin == token_bucket and b + 1 or 0
        write_held(hash, limit, client, as[p], b, cs[p], matters, held[p], live[p], lists[p], lasts[p])
      else
        write_numbers(hash, limit, client, as[p], b, cs[p])
        if holds and b >= limit.span and limit.kind.twin == token_bucket and b + 1 + margin(b + 1) > hash.now.life then
          hash.now.life, hash.renewed = b + 1 + margin(b + 1), true
        end
      end
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
