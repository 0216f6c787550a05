-- Deletes the packed sums of the days of a tenant that are too old.
--
-- KEYS earlier   ARGV [1] how long sums are kept (ms)  [2] the caller's clock (ms): nothing is deleted if this server's
--      clock has jumped

if not runs_on(ARGV[2]) then
  return
end
local first, gone = math.floor((now() - ARGV[1]) / 86400000), {}
for _, day in ipairs(redis.call('HKEYS', KEYS[1])) do
  if (tonumber(day) or first) < first then
    gone[#gone + 1] = day
  end
end
if #gone > 0 then
  redis.call('HSET', KEYS[1], 'forgotten', string.format('%.0f', first * 86400000))
  redis.call('HDEL', KEYS[1], unpack(gone))
end
