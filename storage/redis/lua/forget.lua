-- Deletes sessions whose last use or end is old enough, and the names of sessions that have expired in Redis.
-- A damaged session stays until it expires in Redis, or is replaced or ended.
--
-- KEYS live, ended, sizes, state
-- ARGV [1] prefix of sessions  [2] prefix of findings  [3] last use up to (ms)  [4] end up to (ms)
--      [5] the name to start after  [6] the batch size
-- Returns the last name of the batch, or '' at the end.

local after = ARGV[5] == '' and '-' or '(' .. ARGV[5]
local names = redis.call('ZRANGEBYLEX', KEYS[1], after, '+', 'LIMIT', 0, ARGV[6])
for _, name in ipairs(names) do
  local kept = redis.pcall('HGET', ARGV[1] .. name, 's')
  local is_whole, session = pcall(cmsgpack.unpack, type(kept) == 'string' and string.sub(kept, 9) or '')
  local used_at = is_whole and type(session) == 'table' and tonumber(session.last_used_at)
  if not kept or used_at and used_at <= tonumber(ARGV[3]) then
    delete_session(name, ARGV, KEYS[1], KEYS[3], KEYS[4])
  end
end
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[4], 'LIMIT', 0, ARGV[6])
for _, name in ipairs(over) do
  delete_session(name, ARGV, KEYS[2], KEYS[3], KEYS[4])
end
if #names == tonumber(ARGV[6]) or #over == tonumber(ARGV[6]) then
  return names[#names] or ARGV[5]
end
return ''
