-- Publishes a draft and counts it, in one step: where no cluster keeps their keys on different servers.
-- Stands after `publish` and `count`: result_publish.lua and result_count.lua, each as a function.
-- KEYS: of publish (four), of count (two)
-- ARGV: of count (five), of publish
-- Answers the total, and what publish answers.
local placed = publish({unpack(KEYS, 1, 4)}, {unpack(ARGV, 6)})
if placed == 0 then
  return {tonumber(redis.call('HGET', KEYS[6], 'total') or 0), placed}
end
return {count({KEYS[5], KEYS[6]}, ARGV), placed}
