-- Deletes the oldest entries of a shard. The sums of their days stay.
--
-- KEYS state, entries   ARGV [1] the most entries  [2] the bytes to free
-- Returns how many entries it deleted, and the bytes for which they counted.

local gone, bytes, newest = 0, 0, 0
for _, item in ipairs(redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', ARGV[1])) do
  if bytes >= tonumber(ARGV[2]) then
    break
  end
  gone, bytes = gone + 1, bytes + delete_entry(KEYS[2], item)
  newest = math.max(newest, number_of(item[2][4]))
end
if bytes > 0 then
  add_to(KEYS[1], 'bytes', -bytes)
  note_deleted(KEYS[1], newest)
end
return { gone, bytes }
