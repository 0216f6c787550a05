-- Publishes a result. If the handle has a result with the same content, its body is kept; with other content it is replaced.
--
-- KEYS the result, the session's results, due, held
-- ARGV [1] `asked`, a msgpack map: sha, epoch, size (bytes), body (its key or ''), handle, file (its id), retention
--      (ms), keep_ms (after which Redis deletes what no sweep has deleted), gone (a body that has expired)
--      [2] info  [3] the only segment of a body without a key, or ''
-- Returns { bytes stored in addition, body in use, body no longer in use }.

local asked, used = cmsgpack.unpack(ARGV[1]), now()
need_hash(KEYS[1])
local was = redis.call('HMGET', KEYS[1], 'sha', 'member', 'body')
local body, unused = asked.body, was[3] or ''
if was[1] == asked.sha and was[3] and was[3] ~= asked.gone then
  body, unused = was[3], ''
end
local member = asked.handle .. ' ' .. asked.size .. ' ' .. body
-- `due` first: a result without a row there would be visible and never swept. ZADD before ZREM: a full server refuses
-- a script only at its first write, and it allows ZREM.
local more = redis.call('ZADD', KEYS[3], used + asked.retention, member) == 1 and asked.size or 0
if was[2] and was[2] ~= member and redis.call('ZREM', KEYS[3], was[2]) == 1 then
  more = more - (string.match(was[2], ' (%d+) ') or 0)
end
redis.call('ZADD', KEYS[2], used, asked.file)
redis.call('HSET', KEYS[1], 'info', ARGV[2], 'sha', asked.sha, 'epoch', asked.epoch, 'size', asked.size, 'body', body,
  'used', used, 'member', member, 'segment', body == '' and ARGV[3] or '')
add_to_held(KEYS[4], KEYS[3], more)
redis.call('PEXPIRE', KEYS[1], asked.keep_ms)
redis.call('PEXPIRE', KEYS[2], asked.keep_ms)
return { more, body, unused }
