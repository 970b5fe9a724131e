-- How long things are kept.

-- margin: a state is kept a tenth longer than it matters, and at least a second.
local function margin(us)
  return max(floor(us / 10), 1000000)
end

-- milliseconds is a span as an expiry, in text.
local function milliseconds(us)
  local ms = ceil(us / 1000)
  if ARGV[1] ~= '' then
    ms = ms + 86400000 -- the server's time runs on while the test's stands still
  end
  return string.format('%.0f', ms)
end

-- expiry is the life of a log that matters for so long.
local function expiry(us)
  return milliseconds(us + margin(us))
end
