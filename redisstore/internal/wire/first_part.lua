-- The first part: every state is loaded, then every operation carried out, then what
-- changed is saved. A state's table is what its twin makes of it, with more: client,
-- limit, twin, taken_over when another limit wrote it, changed, gone once reset; a
-- log's is its own, in log, with its key.
local states, hashes = {}, {}
for i = 1, tonumber(argument()) do
  local hash, numbers = load_group()
  if meets_holds then
    return HOLDS
  end
  local kind, limit, same = hash.kind, nil, #numbers == 2
  hash.states = {}
  hashes[i] = hash
  for j = 1, hash.size do
    if j == 1 or not same then
      limit = limits[unpack_struct('>I2', numbers, 2 * j - 1)]
    end
    local state = { -- with room for what its twin adds
      client = ARGV[hash.first + j - 1], limit = limit, twin = kind.twin, changed = false, start = nil, stop = nil, due = nil,
      frac = nil, last = nil,
    }
    local signer = (holds and holds.read or read_state)(hash, j, state)
    state.taken_over = signer and signer ~= limit.set
    hash.states[j] = state
    states[#states + 1] = state
  end
end
for _ = 1, tonumber(argument()) do
  local limit, client, key = limits[tonumber(argument())], argument(), KEYS[next_key]
  next_key = next_key + 1
  local log = limit.kind.log.load(key)
  local state = {
    client = client, limit = limit, twin = limit.kind.twin, key = key, log = log, changed = false,
    taken_over = log.window and (log.window ~= limit.window or log.interval ~= limit.interval),
  }
  states[#states + 1] = state
  if holds then
    holds.read_log(state, KEYS[next_key])
    next_key = next_key + 1
  elseif log.held then
    return HOLDS
  end
end

for _ = 1, tonumber(argument()) do
  local state = states[tonumber(argument())]
  state.marker = KEYS[next_key]
  state.reset_at = tonumber(redis.call('GET', state.marker) or 0)
  say(pack('>i8', state.reset_at))
  next_key = next_key + 1
end

if holds then
  ids.first = ids.by_field() -- of what is asked of each id
  ids.first, at = at, at + ids.first
end

local asks
for i, state in ipairs(states) do
  if not state.log and state.twin.adopt(state, state.limit, now) == false then
    asks = (asks or ASKS) .. pack('>I4i8', i, max(now, state.start or 0))
  end
end
if asks then
  return asks
end

-- The states of the operation at hand, its permits of each, how many it keeps, and its ways, nil of most.
local parts, permits, keeps, ways = {}, {}, {}, nil

local function reset(count)
  for i = 1, count do
    local state = parts[i]
    announce(state.client)
    if state.list then
      holds.note_reset(state)
    end
    if state.marker then
      -- For twice as long as a lease may last, so that what is given back late finds it.
      redis.call('SET', state.marker, string.format('%.0f', now), 'PX', milliseconds(20000000))
      state.reset_at = now
    end
    if state.log then
      redis.call('UNLINK', state.key)
      if state.log.held then
        redis.call('UNLINK', state.held_key)
      end
      state.log = empty_log()
    else
      state.limit.kind.blank(state)
      if not state.limit.edges then -- nothing else happens to a calendar in this batch
        state.twin.adopt(state, state.limit, now)
      end
    end
    state.gone, state.changed, state.taken_over = true, false, nil
    state.held, state.live, state.list, state.own_list, state.written = nil, nil, nil, nil, nil
  end
end

-- ask_limit and charge_limit ask and charge a limit that is none of a log.
local function ask_limit(i)
  local state = parts[i]
  return state.twin.fits(state, state.limit, now, permits[i], keeps[i])
end

local function charge_limit(i)
  local state = parts[i]
  if ways then
    ask_limit(i) -- another way may have asked since
  end
  state.twin.commit(state)
  state.changed = true
end

-- ready makes a log ready for an operation; what that changes is undone by settled
-- unless the operation changes the log.
local function ready(log, limit)
  log.held_gone, log.held_request, log.floor = log.gone, log.request, nil
  sliding_window_log.adopt(log, limit, now)
end

local function settled(log, limit, changed)
  if changed then
    log.window, log.interval = limit.window, limit.interval
  else
    log.gone, log.request = log.held_gone, log.held_request
  end
end

-- transition is what a state's twin says to an action, and grows how long until Remaining grows.
local transition = holds and holds.transition or function(action, state, n, keep)
  return state.twin.apply(action, state.log or state, state.limit, now, n, keep)
end
local grows = holds and holds.grows or function(state, keep)
  return growth(state.twin, state.log, state.limit, now, keep)
end

-- tell answers for a limit.
local function tell(state, out, asked, keep)
  local allowed, after = (out.allowed and 1 or 0) + (out.bound and 2 or 0), asked and grows(state, keep) or 0
  answer(pack('>Bi8i8i8i8i8i8', allowed, out.remaining, out.retry, out.reset, out.delay, out.applied, after))
end

-- each_log calls a function with the logs of an operation's states, each once though several ways may name it.
local function each_log(count, call)
  local seen = {}
  for i = 1, count do
    local state = parts[i]
    if state.log and not seen[state] then
      seen[state] = true
      call(state)
    end
  end
end

-- what_is_left says of a limit that was asked, and not charged, what it has left after others were.
local function what_is_left(out, state, keep)
  local left = transition('settle', state, 0, keep)
  out.remaining, out.reset = left.remaining, left.reset
end

-- apply decides first what all limits say, then carries it out on all. Of one limit
-- the first answer stands. It answers for the logs.
local function apply(verb, count, asked)
  local action = verb == 'settle' and 'settle' or 'take'
  local look = action
  if verb == 'peek' or (action == 'take' and count > 1) then
    look = 'peek'
  end
  local outs, wrote, logged = {}, {}, false
  each_log(count, function(state)
    logged = true
    ready(state.log, state.limit)
  end)
  local allowed, chosen = decide(count, ways, true, function(i)
    outs[i] = transition(look, parts[i], permits[i], keeps[i])
    return outs[i].allowed
  end)
  if logged or holds then
    answer(allowed and '\1' or '\0')
  end
  for i = 1, count do
    local state, out = parts[i], outs[i]
    local again
    if allowed and look == 'peek' and verb ~= 'peek' and (not ways or chosen[i]) then
      again = 'take'
    elseif not allowed and verb == 'take' and state.limit.count_denied then
      again = 'deny'
    end
    if again then
      out = transition(again, state, permits[i], keeps[i])
    end
    outs[i] = out
    if out.changed then
      state.changed = true
      wrote[state] = out
      if out.applied < 0 then
        announce(state.client)
      end
    end
  end
  for i = 1, count do
    local state = parts[i]
    if state.log or holds then
      if ways and not chosen[i] then
        what_is_left(outs[i], state, keeps[i])
      end
      tell(state, outs[i], asked, keeps[i])
    end
  end
  each_log(count, function(state)
    local out = wrote[state]
    settled(state.log, state.limit, out ~= nil)
    state.left = out and out.reset or state.left
  end)
  return allowed and (verb == 'take' or verb == 'try')
end

-- refund returns what was taken at an instant, return_lease what was leased then, unless the
-- state was reset since, or its counts were taken over by a window of another length.
local function refund(verb, count, taken)
  for i = 1, count do
    local state = parts[i]
    local give_back = verb == 'return_lease' and state.twin.return_leased or state.twin.refund_taken
    local outdated = state.marker and taken <= state.reset_at
    if not outdated and give_back(state, state.limit, now, permits[i], taken) then
      state.changed = true
      announce(state.client)
    end
  end
end

-- hold carries out an operation on an id.
local function hold(verb, count, id, asked)
  local changed
  each_log(count, function(state)
    changed = changed or {}
    changed[state], state.changed = state.changed, false
    ready(state.log, state.limit)
  end)
  for i = count + 1, #parts do
    parts[i] = nil
  end
  local outs = holds.decide(verb, parts, permits, keeps, ways, id)
  for i = 1, outs and count or 0 do
    parts[i].left = parts[i].log and parts[i].changed and outs[i].reset or parts[i].left
    tell(parts[i], outs[i], asked, keeps[i])
  end
  each_log(count, function(state)
    settled(state.log, state.limit, state.changed)
    if state.changed then
      local request = state.log.request
      sliding_window_log.adopt(state.log, state.limit, now) -- what is not live is not kept
      state.log.request = request                           -- but the time of an emptied log, which does not run back
    end
    state.changed = state.changed or changed[state]
  end)
end

local list, from = argument(), 1
while from <= #list do
  local verb, asked, count, number, id
  verb, asked, count, from = unpack_struct('>BBI2', list, from)
  verb = verbs[verb]
  local fixed, taken = not holds and (verb == 'take' or verb == 'try'), nil
  if verb == 'refund' or verb == 'return_lease' then
    taken, from = unpack_struct('>i8', list, from)
  elseif verb == 'reserve' or verb == 'commit' or verb == 'cancel' or verb == 'drop' then
    id, from = unpack_struct('>I2', list, from)
  end
  for i = 1, count do
    number, permits[i], keeps[i], from = unpack_struct('>I2i8I4', list, from)
    local state = states[number]
    parts[i] = state
    fixed = fixed and not state.log and not state.limit.count_denied
  end
  ways = nil
  if asked > 1 then
    ways, asked, from = ways_of(list, from, count), asked - 2, from + 2 * count
  end
  if verb == 'reset' then
    reset(count)
  elseif id then
    hold(verb, count, id, asked == 1)
  elseif verb == 'list' then
    for i = 1, count do
      holds.list(parts[i])
    end
  elseif taken then
    refund(verb, count, taken)
  elseif verb == 'bulk' then
    local state = parts[1] -- takes of 1 permit, one after another, as many as fit
    local admitted = state.twin.admit(state, state.limit, now, 1, 0, permits[1])
    state.changed = state.changed or admitted > 0
    allowed_takes = allowed_takes + admitted
    if holds then
      answer(pack('>i8', admitted))
    end
  elseif fixed and decide(count, ways, false, ask_limit, charge_limit) or not fixed and apply(verb, count, asked == 1) then
    allowed_takes = allowed_takes + 1
  end
end

for _, hash in ipairs(hashes) do
  local gone = {}
  for _, state in ipairs(hash.states) do
    if state.gone and not state.changed then
      gone[#gone + 1] = state.client
    end
  end
  if gone[1] then
    redis.call('HDEL', hash.cur, unpack(gone))
    redis.call('HDEL', hash.prev, unpack(gone))
  end
  for _, state in ipairs(hash.states) do
    if state.changed and holds then
      holds.write(hash, state)
    elseif state.changed then
      write_state(hash, state.limit, state.client, state)
    end
  end
  flush(hash)
end
for _, state in ipairs(states) do
  if state.changed and state.log then
    if holds then
      holds.write_log(state)
    end
    state.limit.kind.log.save(state.key, state.log, state.limit, expiry(state.left))
  end
  if state.changed and state.taken_over then
    announce(state.client)
  end
end
if holds then
  local list = {}
  for name in pairs(ids.changed) do
    list[#list + 1], list[#list + 2] = name, ids.buckets[name]
  end
  ids.save(list)
end
