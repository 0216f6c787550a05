-- Publishes a result. A result of the same handle with the same content keeps its body; any other is replaced.
--
-- KEYS the result, the session's results, due, held
-- ARGV [1] info  [2] sha256  [3] epoch  [4] bytes  [5] key of the body or ''  [6] its only segment or ''  [7] handle
--      [8] file id  [9] now (ms)  [10] retention (ms)  [11] a body that has expired
-- Returns { body in use, body no longer in use, bytes stored in addition }; the bytes alone if both are ''.

local was = redis.pcall('HMGET', KEYS[1], 'sha', 'member', 'body')
if was.err then
  redis.call('UNLINK', KEYS[1])
end
local body, unused = ARGV[5], was[3] or ''
if was[1] == ARGV[2] and was[3] ~= ARGV[11] then
  body, unused = was[3], ''
end
local member = ARGV[7] .. ' ' .. ARGV[4] .. ' ' .. body
local more = tonumber(ARGV[4])
redis.call('HSET', KEYS[1], 'info', ARGV[1], 'sha', ARGV[2], 'epoch', ARGV[3], 'size', ARGV[4], 'body', body,
  'used', ARGV[9], 'member', member, 'segment', body == '' and ARGV[6] or '')
if was[2] and redis.call('ZREM', KEYS[3], was[2]) == 1 then
  more = more - (string.match(was[2], ' (%d+) ') or 0)
end
redis.call('INCRBY', KEYS[4], more)
redis.call('ZADD', KEYS[3], ARGV[9] + ARGV[10], member)
redis.call('ZADD', KEYS[2], ARGV[9], ARGV[8])
redis.call('PEXPIRE', KEYS[1], ARGV[10])
redis.call('PEXPIRE', KEYS[2], ARGV[10])
if body == '' and unused == '' then
  return more
end
return { body, unused, more }
