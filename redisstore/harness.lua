-- Decides a batch of operations, each atomically, by the twins above.
--
-- KEYS     one for each limit of each operation, in order
-- ARGV[1]  the time in microseconds since the epoch, or '' for the server's own;
--          it is given in tests only
-- ARGV[2]  how many limits are described
-- ARGV[3…] a description each, numbers joined by ':' behind a letter:
--            t:capacity:debt:permits:period              token bucket
--            l:capacity:debt:permits:period              leaky bucket
--            f:capacity:debt:length                      fixed window
--            c:capacity:debt:edge:edge:edge:edge         fixed window by the calendar
--            s:capacity:debt:window                      sliding window counter
--            p|z|x:capacity:debt:window:interval:counts  sliding window log, as packed
--                                                        string, sorted set or stream
--          times are microseconds; permits:period is a rate in lowest terms; counts
--          is 1 when denied requests are counted
-- then     for each operation: its verb (take, try, peek, reset, settle), 1 if the
--          growth is asked for or 0, the number of its limits, and for each limit the
--          number of its description, from 1, and its permits
--
-- Replies a flat array of integers: the time, then for each operation 0 and for each
-- of its limits: 1 if it allows or 0; remaining permits; microseconds until a retry
-- (-1 for never), until untouched, of delay; permits applied; microseconds until
-- remaining grows (0 if not asked for). Or, as the last of the reply, 1, the number
-- of a limit of the operation, from 0, and a time: the calendar's edges don't reach
-- that time; neither this operation nor those after it were carried out; ask again.
--
-- A value is text, numbers joined by ':'. Buckets: due, rest, last, capacity,
-- permits, period; fixed window: start, end, count; sliding window counter: start,
-- previous, current, window. The log's encodings say their own.

-- MARGIN: a state is kept a tenth longer than it matters, and at least a second.
local function margin(us)
  return max(floor(us / 10), 1000000)
end

local pinned = ARGV[1] ~= ''
local now
if pinned then
  now = tonumber(ARGV[1])
else
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- expiry is the life in milliseconds of a value that matters for so long.
local function expiry(us)
  local ms = ceil((us + margin(us)) / 1000)
  if pinned then
    ms = ms + 86400000 -- the server's time runs on while the test's stands still
  end
  return string.format('%.0f', ms)
end

-- numbers splits a text of numbers joined by ':'.
local function numbers(text)
  local list = {}
  for n in string.gmatch(text, '[^:]+') do
    list[#list + 1] = tonumber(n)
  end
  return list
end

-- Each kind of limit: describe reads its description, load and save its state.
local kinds = {}

-- text makes load and save of a value in one string; fields names its numbers.
local function text(fields, of_limit)
  local format = string.sub(string.rep('%.0f:', #fields + #of_limit), 1, -2)
  local function load(key)
    local state = {}
    local value = redis.call('GET', key)
    if value then
      local list = numbers(value)
      for i, field in ipairs(fields) do
        state[field] = list[i]
      end
      for i, field in ipairs(of_limit) do
        state[field] = list[#fields + i]
      end
    end
    return state
  end
  local function save(key, state, limit, ttl)
    local list = {}
    for i, field in ipairs(fields) do
      list[i] = state[field]
    end
    for i, field in ipairs(of_limit) do
      list[#fields + i] = limit[field]
    end
    redis.call('SET', key, string.format(format, unpack(list)), 'PX', ttl)
  end
  return load, save
end

local function bucket(twin)
  local load, save = text({ 'due', 'rest', 'last' }, { 'capacity', 'permits', 'period' })
  return {
    twin = twin, load = load, save = save,
    describe = function(n) return { capacity = n[1], debt = n[2], permits = n[3], period = n[4] } end,
  }
end
kinds.t = bucket(token_bucket)
kinds.l = bucket(leaky_bucket)

local function window(describe)
  local load, save = text({ 'start', 'stop', 'count' }, {})
  return { twin = fixed_window, load = load, save = save, describe = describe }
end
kinds.f = window(function(n) return { capacity = n[1], debt = n[2], length = n[3] } end)
kinds.c = window(function(n)
  return { capacity = n[1], debt = n[2], length = 0, edges = { n[3], n[4], n[5], n[6] } }
end)

do
  local load, save = text({ 'start', 'previous', 'current' }, { 'window' })
  kinds.s = {
    twin = sliding_window_counter, load = load, save = save,
    describe = function(n) return { capacity = n[1], debt = n[2], window = n[3] } end,
  }
end

for letter, encoding in pairs({ p = packed, z = zset, x = stream }) do
  kinds[letter] = {
    twin = sliding_window_log, load = encoding.load, save = encoding.save,
    describe = function(n)
      return { capacity = n[1], debt = n[2], window = n[3], interval = n[4], count_denied = n[5] == 1 }
    end,
  }
end

local limits = {}
local next_argument = 3
for i = 1, tonumber(ARGV[2]) do
  local description = ARGV[next_argument]
  local kind = kinds[string.sub(description, 1, 1)]
  limits[i] = kind.describe(numbers(string.sub(description, 3)))
  limits[i].kind = kind
  next_argument = next_argument + 1
end

local reply = { now }
local function answer(out)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = out.allowed and 1 or 0, out.remaining, out.retry
  reply[n + 4], reply[n + 5], reply[n + 6], reply[n + 7] = out.reset, out.delay, out.applied, out.grows or 0
end

local function reset(parts)
  reply[#reply + 1] = 0
  for _, part in ipairs(parts) do
    redis.call('UNLINK', part.key)
    answer({ allowed = true, remaining = part.limit.capacity, retry = 0, reset = 0, delay = 0, applied = 0 })
  end
end

-- apply decides first what all limits say, then carries it out on all. Of one limit
-- the first answer stands. It returns false when other edges are needed.
local function apply(verb, parts, growth)
  local action = verb == 'settle' and 'settle' or 'take'
  local look = action
  if verb == 'peek' or (action == 'take' and #parts > 1) then
    look = 'peek'
  end
  for i, part in ipairs(parts) do
    part.state = part.kind.load(part.key)
    if part.kind.twin.adopt(part.state, part.limit, now) == false then
      local n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3] = 1, i - 1, max(now, part.state.start or 0)
      return false
    end
  end
  reply[#reply + 1] = 0
  local allowed = true
  for _, part in ipairs(parts) do
    part.out = part.kind.twin.apply(look, part.state, part.limit, now, part.permits)
    allowed = allowed and part.out.allowed
  end
  for _, part in ipairs(parts) do
    local again
    if allowed and look == 'peek' and verb ~= 'peek' then
      again = 'take'
    elseif not allowed and verb == 'take' and part.limit.count_denied then
      again = 'deny'
    end
    if again then
      part.out = part.kind.twin.apply(again, part.state, part.limit, now, part.permits)
    end
    if growth then
      part.out.grows = part.kind.twin.grows(part.state, part.limit, now)
    end
    if part.out.changed then
      part.kind.save(part.key, part.state, part.limit, expiry(part.out.reset))
    end
    answer(part.out)
  end
  return true
end

local next_key = 1
while next_argument <= #ARGV do
  local verb, growth = ARGV[next_argument], ARGV[next_argument + 1] == '1'
  local count = tonumber(ARGV[next_argument + 2])
  next_argument = next_argument + 3
  local parts = {}
  for i = 1, count do
    local limit = limits[tonumber(ARGV[next_argument])]
    parts[i] = { key = KEYS[next_key], limit = limit, kind = limit.kind, permits = tonumber(ARGV[next_argument + 1]) }
    next_key = next_key + 1
    next_argument = next_argument + 2
  end
  if verb == 'reset' then
    reset(parts)
  elseif not apply(verb, parts, growth) then
    break
  end
end
return reply
