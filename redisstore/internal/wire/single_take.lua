-- Decides one take of one limit, which is what most batches of few callers are. Redis defines a
-- script's functions anew each time that it runs it, which takes longer than a decision, so
-- this script has one function, take_stored of the limit's twin, and leaves to batch.lua what is rare.
--
-- KEYS      those of batch.lua for one group of the second part
-- ARGV[1]   the time, as in batch.lua
-- ARGV[2]   the layout that the process has
-- ARGV[3]   the field of the policy's epoch in the settings, and
-- ARGV[4]   that epoch as the process knows it: see settings.lua
-- ARGV[5]   the limit's parameters as they stand in a generation's head, and
-- ARGV[6]   the format of a state that it writes
-- ARGV[7]   numbers of 8 bytes: how long a generation of the limit lives at least, what the three
--           numbers of a state have to be below, and what the twin is given behind the state
-- ARGV[8]   the client's key
--
-- Replies what batch.lua replies to that take in its second part; or HOLDS; or WHOLE, and has taken nothing,
-- unless the settings are what the process knows or nothing, the limit is the first in the heads of the
-- generations at hand, as it is until its parameters change, and its state needs no more room than they say.

local call = redis.call
local write = struct.pack
local read = struct.unpack
local part = string.sub
local own, form, client = ARGV[5], ARGV[6], ARGV[8]

local settings = call('HMGET', KEYS[1], 'layout', 'all', ARGV[3])
local layout, all, epoch = settings[1], settings[2], settings[3] or '0'
if all and tonumber(all) > tonumber(epoch) then
  epoch = all
end
if epoch ~= ARGV[4] or (layout and layout ~= ARGV[2]) then
  return WHOLE
elseif not layout then
  call('HSET', KEYS[1], 'layout', ARGV[2])
end

local found = call('HMGET', KEYS[2], '', client)
local head, value, older = found[1], found[2], nil
local life, most_a, most_b, most_c, p, q, r, s, t = read('>i8i8i8i8i8i8i8i8i8', ARGV[7])
local start, lives, turn, dead = 0, life, 0, 0
if head then
  start, lives, turn, dead = read('>i8i8i8i8', head)
  if lives < life or part(head, 33, 32 + #own) ~= own then
    return WHOLE
  end
end
local since, told = start, value or NONE
if not value and not (head and now >= dead) then
  found = call('HMGET', KEYS[3], '', client)
  older = found[1] ~= '' and found[1]
  if older and part(older, 33, 32 + #own) ~= own then
    return WHOLE
  end
  value = older and found[2]
  if value then
    since, told = read('>i8', older), PREV .. value
  end
end

local a, b, c, _ = 0, 0, 0, nil
if value then
  local tag = string.byte(value)
  if tag > 0 then
    return tag == HELD and HOLDS or WHOLE
  end
  _, a, b, c = read(form, value)
  a = a + since
end
a, b, c = take_stored(now, a, b, c, p, q, r, s, t)
if a then
  local opens = now >= turn -- a generation, as open in generations.lua does
  since = a - (opens and now or start)
  if since >= most_a or since < -most_a or b >= most_b or c >= most_c then
    return WHOLE
  end
  local text = write(form, 0, since, b, c)
  if not opens then
    call('HSET', KEYS[2], client, text)
  else
    dead = 0
    if head then
      call('HSET', KEYS[2], '', head) -- which a full server refuses, see generations.lua
      call('UNLINK', KEYS[3])
      call('RENAME', KEYS[2], KEYS[3])
      dead = turn + lives
    elseif older then
      local _, lived, turned = read('>i8i8i8', older)
      dead = turned + lived
    end
    turn = now + life
    if turn < dead then
      turn = dead
    end
    call('HSET', KEYS[2], client, text, '', write('>i8i8i8i8', now, life, turn, dead) .. own)
    local margin = (life - life % 10) / 10 -- this and the next as in clock.lua
    local left = turn + life + (margin > 1000000 and margin or 1000000) - now
    left = (left + -left % 1000) / 1000
    left = string.format('%.0f', ARGV[1] == '' and left or left + 86400000)
    call('PEXPIRE', KEYS[2], left)
    if not head and not older and string.find(KEYS[1], '{', 1, true) then
      call('HSET', KEYS[3], '', '') -- see generations.lua
      call('PEXPIRE', KEYS[3], left)
    end
  end
end
return write('>Bi8I2', 0, now, head and #head or 0) .. (head or '') .. (older and write('>I2', #older) .. older or '\0\0')
  .. told .. (a and '\0\0\0\0\0\1' or '\0\0\0\0\0\0')
