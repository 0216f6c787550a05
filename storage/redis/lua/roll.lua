-- Deletes the oldest entries of a shard. The sums of their days stay, and `rolled` says up to which time.
--
-- KEYS state, entries   ARGV [1] the most entries  [2] the bytes that have to go
-- Returns how many it deleted, and the bytes that they counted for.

local gone, bytes, rolled = 0, 0, 0
for _, item in ipairs(redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', ARGV[1])) do
  if bytes >= tonumber(ARGV[2]) then
    break
  end
  gone, bytes = gone + 1, bytes + delete_entry(KEYS[2], item)
  rolled = math.max(rolled, number_of(item[2][4]))
end
if bytes > 0 then
  add_to(KEYS[1], 'bytes', -bytes)
  rolled = math.max(rolled, number_of(redis.call('HGET', KEYS[1], 'rolled')))
  redis.call('HSET', KEYS[1], 'rolled', string.format('%.0f', rolled))
end
return { gone, bytes }
