-- Deletes results: one, those of a session before an epoch, or expired ones.
--
-- KEYS due, held, once
-- ARGV [1] prefix of the shard  [2] retention (ms)
--      [3..] `one`, session, file | `session`, session, epoch | `due`, the caller's clock (ms) or '', batch size
--      `due` with a clock: expired ones, unless this server's clock has jumped; with '': all
-- Returns for each result '1', or '0' if it had expired, and the key of its body.

local reply = redis.call('GET', KEYS[3])
if reply then
  return cmsgpack.unpack(reply)
end
local removed, time = {}, now()

-- `row` is the result's row in `due`: a result that was published again has another row, and stays. `before` is an
-- epoch. A result without a row is damaged: the sweep deletes the rest of it.
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
    removed[#removed + 1], removed[#removed + 2] = (tonumber(used) or 0) + ARGV[2] > time and '1' or '0', body or ''
  end
end

if ARGV[3] == 'one' then
  remove(ARGV[4], ARGV[5])
elseif ARGV[3] == 'due' then
  if ARGV[4] ~= '' and not runs_on(ARGV[4]) then
    return {}
  end
  local last = ARGV[4] == '' and '+inf' or time
  for _, row in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', last, 'LIMIT', 0, ARGV[5])) do
    local session, file = string.match(row, '^(.-)/(%S*)')
    remove(session or '', file or '', row)
  end
else
  local files = redis.pcall('ZRANGE', ARGV[1] .. 'results:' .. ARGV[4], 0, -1)
  if files.err then
    redis.call('UNLINK', ARGV[1] .. 'results:' .. ARGV[4])
  end
  for _, file in ipairs(files) do
    remove(ARGV[4], file, nil, tonumber(ARGV[5]))
  end
end
if #removed > 0 and ARGV[3] ~= 'due' then
  redis.call('SET', KEYS[3], cmsgpack.pack(removed), 'PX', 60000)
end
return removed
