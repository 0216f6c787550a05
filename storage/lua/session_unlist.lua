-- Takes sessions off their tenant's lists. Nobody has leave to write to one that was last listed too long ago:
-- found empty since, it is empty.
--
-- KEYS as session_list.lua   ARGV[1] what is too long, in ms; then for each session: its id, and 'gone' if it
-- is forgotten, or the time of listing up to which its outbox was found empty

local time = redis.call('TIME')
local stale = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1]
for place = 2, #ARGV, 2 do
  local name, found = ARGV[place], ARGV[place + 1]
  local listed = redis.call('ZSCORE', KEYS[2], name)
  if found == 'gone' then
    if not listed then
      redis.call('ZREM', KEYS[1], name)
    end
  elseif listed == found and tonumber(listed) <= stale then
    redis.call('ZREM', KEYS[2], name)
  end
end
