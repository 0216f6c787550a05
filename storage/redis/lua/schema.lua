-- Returns the schema of the deployment and the version that wrote it. Writes ours where there is none.
--
-- KEYS spillgate:schema   ARGV [1] the schema of this version  [2] this version

local found = redis.pcall('HMGET', KEYS[1], 'number', 'written_by')
if found.err then
  return {'damaged', ''}
end
if not found[1] then
  redis.call('HSET', KEYS[1], 'number', ARGV[1], 'written_by', ARGV[2])
  return {ARGV[1], ARGV[2]}
end
return {found[1], found[2] or ''}
