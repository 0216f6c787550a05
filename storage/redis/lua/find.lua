-- Reads the info of a result that has not expired.
--
-- KEYS the result   ARGV [1] retention (ms)
-- Returns its info and its last use (ms), or nothing.

local info, used = unpack(redis.call('HMGET', KEYS[1], 'info', 'used'))
if not info or (tonumber(used) and used + ARGV[1] <= now()) then
  return {}
end
return { info, used }
