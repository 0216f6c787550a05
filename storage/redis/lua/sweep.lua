-- Deletes a batch of a shard's sessions and entries that are old enough, and the sums and handles of their time.
-- Names of sessions that have expired in Redis go too. A damaged time counts as the latest.
--
-- KEYS state, entries, handles, days, live, ended, sizes
-- ARGV [1] prefix of the shard  [2] last use up to (ms)  [3] end and entries up to (ms)  [4] the batch size
--      [5] where the batch begins in the names of live sessions: '-' or '(' and a name
-- Returns how many sessions and entries were deleted, and where the next batch begins, or '' at the end.

local idle, oldest, batch = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local sessions, entries, bytes = 0, 0, 0

local function delete(name, list)
  redis.call('UNLINK', ARGV[1] .. 'session:' .. name, ARGV[1] .. 'findings:' .. name)
  redis.call('ZREM', list, name)
  bytes = bytes + number_of(redis.pcall('HGET', KEYS[7], name))
  redis.pcall('HDEL', KEYS[7], name)
  sessions = sessions + 1
end

redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', oldest)
local names = redis.call('ZRANGEBYLEX', KEYS[5], ARGV[5], '+', 'LIMIT', 0, batch)
for _, name in ipairs(names) do
  local used_at = redis.pcall('HGET', ARGV[1] .. 'session:' .. name, 'u')
  if not used_at or (tonumber(used_at) or 2 ^ 53) <= idle then
    delete(name, KEYS[5])
  end
end
local over = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', oldest, 'LIMIT', 0, batch)
for _, name in ipairs(over) do
  delete(name, KEYS[6])
end
for _, item in ipairs(redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', batch)) do
  if (tonumber(item[2][4] or string.match(item[1], '%d+')) or 2 ^ 53) <= oldest then
    redis.call('XDEL', KEYS[2], item[1])
    entries, bytes = entries + 1, bytes + 2 * #item[2][2]
  end
end
local whole_days = math.floor((oldest + 1) / 86400000) - 1
for _, day in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', whole_days)) do
  redis.call('UNLINK', ARGV[1] .. 'day:' .. day)
  redis.call('ZREM', KEYS[4], day)
end
if bytes > 0 then
  add_to(KEYS[1], 'bytes', -bytes)
end
if redis.call('XLEN', KEYS[2]) == 0 then
  redis.call('UNLINK', KEYS[2])
  if redis.call('EXISTS', KEYS[5], KEYS[6]) == 0 then
    redis.call('UNLINK', KEYS[1], KEYS[7])
  end
end
local goes_on = #names == batch or #over == batch or entries > 0
return { sessions, entries, goes_on and (#names > 0 and '(' .. names[#names] or ARGV[5]) or '' }
