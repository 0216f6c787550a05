-- Restarts a result's retention.
--
-- KEYS the result, the session's results, due   ARGV[1] now  [2] retention, both in ms  [3] file id
-- Replies the time of its last use and its body's key; nothing where there is no such result.

local used, member, body = unpack(redis.call('HMGET', KEYS[1], 'used', 'member', 'body'))
if not used then
  return {}
end
used = math.max(used, ARGV[1])
-- First: a full server refuses a script only its first write, and not this one.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[1], 'used', used)
redis.call('ZADD', KEYS[2], 'XX', used, ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[3], 'XX', used + ARGV[2], member)
return { used, body }
