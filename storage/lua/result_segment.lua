-- One segment for a reader that has begun, and the others kept for long enough to be asked for.
-- KEYS: result, grave
-- ARGV: draft id, number of the segment, keep (ms)
-- Answers nil where that body is gone.
for _, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'draft') == ARGV[1] then
    if redis.call('PTTL', key) < tonumber(ARGV[3]) then
      redis.call('PEXPIRE', key, ARGV[3])
    end
    return redis.call('HGET', key, ARGV[2])
  end
end
return false
