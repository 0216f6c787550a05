-- Publishes a draft: from here on it is found. The same draft again changes nothing; the same content again
-- leaves the body that stands there to its readers.
-- KEYS: result, index of its session, draft, grave
-- ARGV: draft id, file id, used at (ms), retention (ms), grave (ms), stored, sha256, bytes, bytes a segment,
--       segments that stand in the draft, the last segment; empty where it stands there too
-- Answers 1, or 0 where segments of the draft are missing.
local result, index, draft, grave = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, file, used_at, retention, grave_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local stored, sha256, bytes, segment_bytes, sent, last = unpack(ARGV, 6, 11)

local before = redis.call('HMGET', result, 'draft', 'sha256', 'bytes', 'segments')
if before[1] == id then
  return 1
end

-- When memory is full Redis refuses the first write of a script, and only that: it has to be one like HSET.
if before[2] == sha256 and before[3] == bytes then
  redis.call('HSET', result, 'stored', stored, 'used_at', used_at, 'counted_at', used_at)
  redis.call('UNLINK', draft)
else
  -- What is all in the last segment goes where it is found at once, if nothing is in its way.
  local place = (sent == '0' and not before[4]) and result or draft
  if place == draft and redis.call('HLEN', draft) ~= tonumber(sent) then
    return 0
  end
  local info = {'draft', id, 'stored', stored, 'sha256', sha256, 'bytes', bytes,
    'segment_bytes', segment_bytes, 'used_at', used_at, 'counted_at', used_at}
  if last ~= '' then
    redis.call('HSET', place, 'segments', sent + 1, sent, last, unpack(info))
  else
    redis.call('HSET', place, 'segments', sent, unpack(info))
  end
  if before[4] and tonumber(before[4]) > 1 then
    redis.call('RENAME', result, grave)
    redis.call('PEXPIRE', grave, grave_ms)
  end
  if place == draft then
    redis.call('RENAME', draft, result)
  end
end
redis.call('PEXPIRE', result, retention)
redis.call('ZADD', index, used_at, file)
redis.call('PEXPIRE', index, retention)
return 1
