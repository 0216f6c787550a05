-- Deletes a result. A body of several segments stays readable for a while to those who hold its draft id:
-- who has begun to read it finishes. The same deletion again, its reply having been lost, answers the same.
-- KEYS: result, index of its session, grave
-- ARGV: file id, grave (ms), id of this deletion (empty: it is not asked for again), delete it only if it was
--       last used at or before this (ms; empty: in any case)
-- Answers when it was last used; nil where nothing was.
local result, index, grave = KEYS[1], KEYS[2], KEYS[3]
local file, grave_ms, id, expired_by = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local found = redis.call('HMGET', result, 'used_at', 'segments')
if not found[1] then
  redis.call('ZREM', index, file)
  local deleted = redis.call('HMGET', grave, 'deletion', 'deleted_use')
  return id ~= '' and deleted[1] == id and tonumber(deleted[2])
end
local used_at = tonumber(found[1])
if expired_by ~= '' and used_at > tonumber(expired_by) then
  return used_at
end

if tonumber(found[2]) > 1 then
  redis.call('RENAME', result, grave)
else
  redis.call('UNLINK', result)
end
redis.call('ZREM', index, file)
if id ~= '' then
  redis.call('HSET', grave, 'deletion', id, 'deleted_use', found[1])
end
redis.call('PEXPIRE', grave, grave_ms)
return used_at
