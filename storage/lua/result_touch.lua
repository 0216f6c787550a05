-- A result was used: the retention of all of it starts anew.
-- KEYS: result, index of its session
-- ARGV: file id, now (ms), retention (ms)
-- Answers when it was last used, and its bytes when they are to be counted anew, else -1; nil where it is gone.
local found = redis.call('HMGET', KEYS[1], 'used_at', 'counted_at', 'bytes')
if not found[1] then
  return false
end
local now = tonumber(ARGV[2])
local used_at = math.max(tonumber(found[1]), now)

-- First what is allowed when memory is full: then the rest is, too, and reading goes on.
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
redis.call('HSET', KEYS[1], 'used_at', string.format('%.0f', used_at))
redis.call('ZADD', KEYS[2], string.format('%.0f', used_at), ARGV[1])
if now - tonumber(found[2]) < tonumber(ARGV[3]) / 4 then
  return {used_at, -1}
end
redis.call('HSET', KEYS[1], 'counted_at', ARGV[2])
return {used_at, tonumber(found[3])}
