-- Deletes results: one, those of a session before an epoch, or expired ones.
--
-- KEYS due, held, once
-- ARGV [1] prefix of the shard  [2..] `one`, handle | `session`, session, epoch | `due`, now (ms), batch size
-- Returns for each its last use ('0' if it had expired in Redis) and the key of its body.

local MEMBER = '^(.-)/(%S+) (%d+) (.*)$'
local said = redis.call('GET', KEYS[3])
if said then
  return cmsgpack.unpack(said)
end
local members = {}

-- Collects the member of a result. A damaged result is deleted here; the sweep takes what else there is of it.
local function collect(key, epoch)
  local found = redis.pcall('HMGET', key, 'epoch', 'member')
  local at, member = tonumber(found[1] or nil), found[2]
  local goes = not epoch or not at or at < epoch
  if found.err or goes and (found[1] or member) and not string.match(member or '', MEMBER) then
    redis.call('UNLINK', key)
  elseif goes and member then
    members[#members + 1] = member
  end
end

if ARGV[2] == 'one' then
  collect(ARGV[1] .. 'result:' .. ARGV[3])
elseif ARGV[2] == 'due' then
  members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])
else
  local files = redis.pcall('ZRANGE', ARGV[1] .. 'results:' .. ARGV[3], 0, -1)
  if files.err then
    redis.call('UNLINK', ARGV[1] .. 'results:' .. ARGV[3])
  end
  for _, file in ipairs(files) do
    collect(ARGV[1] .. 'result:' .. ARGV[3] .. '/' .. file, tonumber(ARGV[4]))
  end
end
local removed = {}
for _, member in ipairs(members) do
  local session, file, size, body = string.match(member, MEMBER)
  local used
  if session then
    local key = ARGV[1] .. 'result:' .. session .. '/' .. file
    local found = redis.pcall('HMGET', key, 'used', 'member')
    used = tonumber(found[1] or nil) and found[1]
    if found.err or not found[2] or found[2] == member then
      redis.call('UNLINK', key)
      redis.pcall('ZREM', ARGV[1] .. 'results:' .. session, file)
    end
  end
  if redis.call('ZREM', KEYS[1], member) == 1 then
    add_to_held(KEYS[2], KEYS[1], -(size or 0))
  end
  removed[#removed + 1] = used or '0'
  removed[#removed + 1] = body or ''
end
if #removed > 0 and ARGV[2] ~= 'due' then
  redis.call('SET', KEYS[3], cmsgpack.pack(removed), 'PX', 60000)
end
return removed
