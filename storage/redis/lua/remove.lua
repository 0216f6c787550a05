-- Deletes results: one, those of a session before an epoch, or expired ones.
--
-- KEYS due, held, once
-- ARGV [1] prefix of the shard  [2..] `one`, handle | `session`, session, epoch | `due`, now (ms), batch size
-- Returns for each its last use ('0' if it had expired in Redis) and the key of its body.

local said = redis.call('GET', KEYS[3])
if said then
  return cmsgpack.unpack(said)
end
local members = {}
if ARGV[2] == 'one' then
  members = { redis.call('HGET', ARGV[1] .. 'result:' .. ARGV[3], 'member') or nil }
elseif ARGV[2] == 'due' then
  members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])
else
  for _, file in ipairs(redis.call('ZRANGE', ARGV[1] .. 'results:' .. ARGV[3], 0, -1)) do
    local key = ARGV[1] .. 'result:' .. ARGV[3] .. '/' .. file
    local epoch, member = unpack(redis.call('HMGET', key, 'epoch', 'member'))
    if epoch and tonumber(epoch) < tonumber(ARGV[4]) then
      members[#members + 1] = member
    end
  end
end
local removed = {}
for _, member in ipairs(members) do
  local session, file, size, body = string.match(member, '^(.-)/(%S+) (%d+) (.*)$')
  local key = ARGV[1] .. 'result:' .. session .. '/' .. file
  local used, now = unpack(redis.call('HMGET', key, 'used', 'member'))
  if not now or now == member then
    redis.call('UNLINK', key)
    redis.call('ZREM', ARGV[1] .. 'results:' .. session, file)
  end
  if redis.call('ZREM', KEYS[1], member) == 1 then
    redis.call('DECRBY', KEYS[2], size)
  end
  removed[#removed + 1] = used or '0'
  removed[#removed + 1] = body
end
if #removed > 0 and ARGV[2] ~= 'due' then
  redis.call('SET', KEYS[3], cmsgpack.pack(removed), 'PX', 60000)
end
return removed
