-- Forgets a piece of what is past its retention.
--
-- KEYS[1] the list   KEYS[2] when handles were stored   ARGV[1] the time, in ms, up to which   ARGV[2] how many
-- Answers how many went; 0 when it is done.

local oldest = tonumber(ARGV[1])
local handles = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', oldest, 'LIMIT', 0, ARGV[2])
if #handles > 0 then
  redis.call('ZREM', KEYS[2], unpack(handles))
end
local after = string.format('%.0f-0', math.max(0, oldest + 1))
local gone = redis.call('XTRIM', KEYS[1], 'MINID', '~', after, 'LIMIT', ARGV[2])
if gone == 0 then
  -- What is left stands in one node of the list.
  gone = redis.call('XTRIM', KEYS[1], 'MINID', '=', after)
end
return gone + #handles
