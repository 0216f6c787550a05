-- Forgets sessions of a shard that were not used for a time, first those that stored nothing; or one named session.
--
-- KEYS state, sizes, the list of names: live or ended
-- ARGV [1] prefix of the shard  [2] how long they were not used (ms)  [3] the most to forget  [4] `empty`: only those
--      that stored nothing  [5] the only session to forget, or ''
-- Returns how many it forgot, and the earliest last use of the others, 0 if there are none.

local state, sizes, list = unpack(KEYS)
local idle, most, first = now() - ARGV[2], tonumber(ARGV[3]), 0
local names, leaving, bytes, gone = {}, {}, 0, 0
if ARGV[5] == '' then
  names = redis.call('ZRANGE', list, 0, 4999)
elseif redis.call('ZSCORE', list, ARGV[5]) then
  names = { ARGV[5] }
end
for _, name in ipairs(names) do
  local used, stores = unpack(redis.pcall('HMGET', ARGV[1] .. 'session:' .. name, 'u', 'h'))
  used = tonumber(used) or 0
  if used <= idle and not (ARGV[4] == 'empty' and stores) then
    leaving[#leaving + 1] = { name, used }
  elseif first == 0 or used < first then
    first = used
  end
end
table.sort(leaving, function(one, other)
  return one[2] < other[2]
end)
for place, one in ipairs(leaving) do
  if place > most then
    break
  end
  gone, bytes = gone + 1, bytes + delete_session(ARGV[1], list, sizes, one[1])
end
if bytes > 0 then
  add_to(state, 'bytes', -bytes)
end
return { gone, first }
