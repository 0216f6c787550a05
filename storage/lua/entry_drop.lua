-- Drops what the tenant's list has. The emptied outbox stays for a while, so that whoever still holds what was
-- taken from it is not mistaken about its numbers.
--
-- KEYS[1] the outbox   ARGV[1] its birth   ARGV[2] the number up to which

local EMPTY_MS = 600000

local birth, first, last = unpack(redis.call('HMGET', KEYS[1], 'birth', 'first', 'last'))
local upto = tonumber(ARGV[2])
if birth ~= ARGV[1] or tonumber(first) > upto then
  return
end
local numbers = {}
for number = first, upto do
  numbers[#numbers + 1] = number
end
redis.call('HDEL', KEYS[1], unpack(numbers))
redis.call('HSET', KEYS[1], 'first', upto + 1)
if upto == tonumber(last) then
  redis.call('PEXPIRE', KEYS[1], EMPTY_MS)
end
