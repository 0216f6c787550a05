-- Deletes a batch of expired entries, and the sums and handles of their time.
-- The time of a damaged entry is that in its id.
--
-- KEYS state, entries, handles, days   ARGV [1] prefix of the sums  [2] time of the newest to delete (ms)
--      [3] the batch size   Returns how many entries were deleted.

local oldest, gone, bytes = tonumber(ARGV[2]), 0, 0
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', oldest)
for _, item in ipairs(redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', ARGV[3])) do
  local is_whole, entry = pcall(cmsgpack.unpack, item[2][2])
  local at = is_whole and type(entry) == 'table' and entry.timestamp or string.match(item[1], '%d+')
  if (tonumber(at) or 0) <= oldest then
    redis.call('XDEL', KEYS[2], item[1])
    gone, bytes = gone + 1, bytes + 2 * #item[2][2]
  end
end
local whole_days = math.floor((oldest + 1) / 86400000) - 1
for _, day in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', whole_days)) do
  redis.call('UNLINK', ARGV[1] .. day)
  redis.call('ZREM', KEYS[4], day)
end
if gone > 0 then
  add_to(KEYS[1], 'entry_bytes', redis.call('XLEN', KEYS[2]) > 0 and -bytes or -math.huge)
  local trimmed = number_of(redis.call('HGET', KEYS[1], 'trimmed')) or 0
  redis.call('HSET', KEYS[1], 'trimmed', math.max(oldest, trimmed))
end
return gone
