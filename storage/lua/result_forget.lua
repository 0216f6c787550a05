-- Takes bodies out of what the store holds.
-- KEYS: due, sizes
-- ARGV: only those due at or before this (ms; inf: all), names
-- Answers how many of them were counted, and the total.
local due, sizes = KEYS[1], KEYS[2]
local forgotten = 0
for position = 2, #ARGV do
  local name = ARGV[position]
  local due_at = redis.call('ZSCORE', due, name)
  if due_at and tonumber(due_at) <= tonumber(ARGV[1]) then
    redis.call('ZREM', due, name)
    redis.call('HINCRBY', sizes, 'total', 0 - (redis.call('HGET', sizes, name) or 0))
    redis.call('HDEL', sizes, name)
    forgotten = forgotten + 1
  end
end
return {forgotten, tonumber(redis.call('HGET', sizes, 'total') or 0)}
