-- Restarts the retention of a result.
--
-- KEYS the result, the session's results, due
-- ARGV [1] retention (ms)  [2] after which Redis deletes what no sweep has deleted (ms)  [3] file id
-- Returns its last use and the key of its body, or nothing if there is no such result.

local used, member, body = unpack(redis.pcall('HMGET', KEYS[1], 'used', 'member', 'body'))
if not tonumber(used) then
  return {}
end
used = math.max(used, now())
-- This first: a full server refuses a script only at its first write, and it allows PEXPIRE.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('HSET', KEYS[1], 'used', used)
redis.call('ZADD', KEYS[2], 'XX', used, ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('ZADD', KEYS[3], 'XX', used + ARGV[1], member or '')
return { used, body }
