-- Forgets sessions that were last used, or ended, long enough ago, or that Redis has forgotten by itself.
--
-- KEYS live, ended, sizes, state   ARGV[1] the prefix of sessions  [2] that of findings  [3] idle since (ms)  [4] ended
-- by (ms)  [5] the name after which to look  [6] how many at most
-- Replies the last name that it looked at, or '' at the end.

local function forget(list, name)
  redis.call('UNLINK', ARGV[1] .. name, ARGV[2] .. name)
  redis.call('ZREM', list, name)
  redis.call('HINCRBY', KEYS[4], 'session_bytes', -tonumber(redis.call('HGET', KEYS[3], name) or 0))
  redis.call('HDEL', KEYS[3], name)
end

local after = ARGV[5] == '' and '-' or '(' .. ARGV[5]
local names = redis.call('ZRANGEBYLEX', KEYS[1], after, '+', 'LIMIT', 0, ARGV[6])
for _, name in ipairs(names) do
  local kept = redis.call('HGET', ARGV[1] .. name, 's')
  if not kept or cmsgpack.unpack(kept).last_used_at <= tonumber(ARGV[3]) then
    forget(KEYS[1], name)
  end
end
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[4], 'LIMIT', 0, ARGV[6])
for _, name in ipairs(over) do
  forget(KEYS[2], name)
end
if #names == tonumber(ARGV[6]) or #over == tonumber(ARGV[6]) then
  return names[#names] or ARGV[5]
end
return ''
