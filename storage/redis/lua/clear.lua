-- Deletes a batch of the entries and sessions of a shard; in the end all else that the ledger keeps in it.
--
-- KEYS state, entries, handles, days, live, ended, sizes
-- ARGV [1] prefix of sessions  [2] prefix of findings  [3] prefix of the sums  [4] the batch size
-- Returns how many sessions and entries were deleted, and 1 if none is left.

local sessions, bytes = 0, 0
local entries = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', ARGV[4])
for _, item in ipairs(entries) do
  redis.call('XDEL', KEYS[2], item[1])
  bytes = bytes + 2 * #item[2][2]
end
-- After a deletion, because a full server refuses a script only at its first write, and allows XDEL and UNLINK.
if bytes > 0 then
  add_to(KEYS[1], 'entry_bytes', -bytes)
end
for place = 5, 6 do
  for _, name in ipairs(redis.call('ZRANGE', KEYS[place], 0, ARGV[4] - 1)) do
    delete_session(name, ARGV, KEYS[place], KEYS[7], KEYS[1])
    sessions = sessions + 1
  end
end
if sessions + #entries > 0 then
  return { sessions, #entries, 0 }
end
for _, day in ipairs(redis.call('ZRANGE', KEYS[4], 0, -1)) do
  redis.call('UNLINK', ARGV[3] .. day)
end
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[7])
return { 0, 0, 1 }
