-- Counts one body, published or draft, into what the store holds; counted before, it counts as this.
-- KEYS: due, sizes
-- ARGV: how long counts are kept (ms), name, bytes (empty: as before), due at (ms), the name it had before
-- Answers the total.
local due, sizes = KEYS[1], KEYS[2]
local name, former = ARGV[2], ARGV[5]
local before = redis.call('HMGET', sizes, 'total', name, former)
local bytes = ARGV[3] == '' and tonumber(before[2] or 0) or tonumber(ARGV[3])
local total = string.format('%.0f',
  tonumber(before[1] or 0) + bytes - tonumber(before[2] or 0) - tonumber(before[3] or 0))

-- First what is allowed when memory is full, as a result that is in use must not be forgotten then.
redis.call('PEXPIRE', due, ARGV[1])
redis.call('PEXPIRE', sizes, ARGV[1])
redis.call('HSET', sizes, 'total', total, name, string.format('%.0f', bytes))
redis.call('ZADD', due, ARGV[4], name)
if before[3] then
  redis.call('HDEL', sizes, former)
  redis.call('ZREM', due, former)
end
return tonumber(total)
