-- Decides one take of one limit, which is what most batches of few callers are. Redis defines a
-- script's functions anew each time that it runs it, which takes longer than a decision, so
-- this script has few of them, and leaves to batch.lua what is rare.
--
-- KEYS, ARGV and the reply are those of batch.lua for one client in the second part. It
-- replies '\2', and has changed nothing, unless the limit is the first in the heads of the
-- generations at hand, as it is until its parameters change, and its state needs no more room
-- than they say.

local byte, sub = string.byte, string.sub
local pack, unpack_struct = struct.pack, struct.unpack

local own, client, n = ARGV[at + 1], ARGV[at + 6], tonumber(ARGV[at + 7] or 1)
local capacity, debt, span, x, y = unpack_struct(schedule and '>i8i8i8i8i8' or '>i8i8i8i8', ARGV[at + 2], 2)
local limit = { capacity = capacity, debt = debt, permits = x, period = y, length = x, window = x }

-- foreign reports whether another limit is the first in a head.
local function foreign(head)
  return sub(head, 33, 32 + #own) ~= own
end

local found = redis.call('HMGET', KEYS[2], '', client)
local head, value, older = found[1], found[2], nil
local long = span + margin(span)
local start, life, turn, dead = 0, long, 0, 0
if head then
  start, life, turn, dead = unpack_struct('>i8i8i8i8', head)
  if foreign(head) or life < long then
    return '\2'
  end
end

local wa, wb, wc = byte(own, 1, 3)
local form = '>Bi' .. wa .. 'I' .. wb .. 'I' .. wc
local origin, told = start, value or '\254'
if not value and not (head and now >= dead) then
  local before = redis.call('HMGET', KEYS[3], '', client)
  older = before[1]
  if older and foreign(older) then
    return '\2'
  end
  value = older and before[2]
  if value then
    origin, told = unpack_struct('>i8', older), '\255' .. value
  end
end

local tag, a, b, c = 0, 0, 0, 0
if value then
  if #value ~= 1 + wa + wb + wc then
    return '\2'
  end
  tag, a, b, c = unpack_struct(form, value)
  a = a + origin
end
if tag > 0 then
  return '\2'
end
local twin = token_bucket or leaky_bucket or fixed_window or sliding_window_counter
a, b, c = twin.take_stored(limit, now, value, a, b, c, n)
local opens = now >= turn -- a generation, as open in generations.lua does
if a then
  local since = a - (opens and now or start)
  if since >= 256 ^ wa / 2 or since < -256 ^ wa / 2 or b >= 256 ^ wb or c >= 256 ^ wc then
    return '\2'
  end
  local text = pack(form, 0, since, b, c)
  if not opens then
    redis.call('HSET', KEYS[2], client, text)
  else
    dead = 0
    if head then
      redis.call('UNLINK', KEYS[3])
      redis.call('RENAME', KEYS[2], KEYS[3])
      dead = turn + life
    elseif older then
      local _, lived, turned = unpack_struct('>i8i8i8', older)
      dead = turned + lived
    end
    turn = max(now + long, dead)
    redis.call('HSET', KEYS[2], client, text, '', pack('>i8i8i8i8', now, long, turn, dead) .. own)
    redis.call('PEXPIRE', KEYS[2], milliseconds(turn + long + margin(long) - now))
  end
end
return pack('>Bi8I2', 0, now, head and #head or 0) .. (head or '') .. pack('>I2', older and #older or 0) .. (older or '')
  .. told .. pack('>I6', a and 1 or 0)
