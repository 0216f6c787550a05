-- Deletes sums of days of a shard after they were packed with those of the other shards.
--
-- KEYS state, sizes, entries, days, live, ended   ARGV [1] prefix of the shard  [2..] days

local state, sizes, entries, days, live, ended = unpack(KEYS)
for place = 2, #ARGV do
  redis.call('UNLINK', ARGV[1] .. 'day:' .. ARGV[place])
  redis.call('ZREM', days, ARGV[place])
end
if redis.call('EXISTS', entries, live, ended, days) == 0 then
  redis.call('UNLINK', state, sizes)
end
