-- Deletes results: one, those of a session before an epoch, or expired ones.
--
-- KEYS due, held, once
-- ARGV [1] prefix of the shard  [2..] `one`, session, file | `session`, session, epoch | `due`, now (ms), batch size
-- Returns for each its last use ('0' if it had expired in Redis) and the key of its body.

local reply = redis.call('GET', KEYS[3])
if reply then
  return cmsgpack.unpack(reply)
end
local removed = {}

-- `row` is its row in `due`: a result that was published again has another one, and stays. `before` is an epoch.
-- Of a result without a row, which is damaged, the sweep deletes what else there is of it.
local function remove(session, file, row, before)
  local key = ARGV[1] .. 'result:' .. session .. '/' .. file
  local used, member, epoch = unpack(redis.pcall('HMGET', key, 'used', 'member', 'epoch'))
  if before and (tonumber(epoch) or 0) >= before then
    return
  end
  row = row or member
  if not member or member == row then
    redis.call('UNLINK', key)
    redis.pcall('ZREM', ARGV[1] .. 'results:' .. session, file)
  end
  if row then
    local size, body = string.match(row, ' (%d+) (.*)$')
    if redis.call('ZREM', KEYS[1], row) == 1 then
      add_to_held(KEYS[2], KEYS[1], -(size or 0))
    end
    removed[#removed + 1], removed[#removed + 2] = tonumber(used) and used or '0', body or ''
  end
end

if ARGV[2] == 'one' then
  remove(ARGV[3], ARGV[4])
elseif ARGV[2] == 'due' then
  for _, row in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[3], 'LIMIT', 0, ARGV[4])) do
    local session, file = string.match(row, '^(.-)/(%S*)')
    remove(session or '', file or '', row)
  end
else
  local files = redis.pcall('ZRANGE', ARGV[1] .. 'results:' .. ARGV[3], 0, -1)
  if files.err then
    redis.call('UNLINK', ARGV[1] .. 'results:' .. ARGV[3])
  end
  for _, file in ipairs(files) do
    remove(ARGV[3], file, nil, tonumber(ARGV[4]))
  end
end
if #removed > 0 and ARGV[2] ~= 'due' then
  redis.call('SET', KEYS[3], cmsgpack.pack(removed), 'PX', 60000)
end
return removed
