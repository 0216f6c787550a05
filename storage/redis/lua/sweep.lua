-- Deletes a batch of a shard's sessions and entries that are old enough, and the handles of their time. Sums of days are
-- deleted only with a tenant; otherwise they are packed.
-- Deletes names of sessions that have expired in Redis, too. A damaged time counts as the latest. Entries of the future
-- do not hide older ones.
--
-- KEYS state, entries, handles, days, live, ended, sizes
-- ARGV [1] prefix of the shard  [2] how long sessions are kept (ms)  [3] ended sessions and entries  [4] the batch size
--      [5] where the batch begins in the names of live sessions: '-' or '(' and name  [6] in the entries
--      [7] the caller's clock (ms): nothing is deleted if this server's clock has jumped; '': all is old enough
-- Returns how many sessions and entries it deleted, where the next batch begins in both ('' for sessions at the end),
-- and the days whose sums are to be packed.

local state, entries, handles, days, live, ended, sizes = unpack(KEYS)
if ARGV[7] ~= '' and not runs_on(ARGV[7]) then
  return { 0, 0, '', '-', {} }
end
local time, batch = ARGV[7] == '' and 2 ^ 53 or now(), tonumber(ARGV[4])
local idle, oldest = time - ARGV[2], time - ARGV[3]
local sessions, gone, bytes, newest = 0, 0, 0, 0

local function delete(name, list)
  sessions, bytes = sessions + 1, bytes + delete_session(ARGV[1], list, sizes, name)
end

redis.call('ZREMRANGEBYSCORE', handles, '-inf', oldest)
local names = redis.call('ZRANGEBYLEX', live, ARGV[5], '+', 'LIMIT', 0, batch)
for _, name in ipairs(names) do
  local used_at = redis.pcall('HGET', ARGV[1] .. 'session:' .. name, 'u')
  if not used_at or (tonumber(used_at) or 2 ^ 53) <= idle then
    delete(name, live)
  end
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', ended, '-inf', oldest, 'LIMIT', 0, batch)) do
  delete(name, ended)
end
local items, at = redis.call('XRANGE', entries, ARGV[6], '+', 'COUNT', batch), 0
for _, item in ipairs(items) do
  at = tonumber(item[2][4] or string.match(item[1], '%d+')) or 2 ^ 53
  if at <= oldest then
    gone, bytes = gone + 1, bytes + delete_entry(entries, item)
    newest = math.max(newest, at)
  end
end
local begin = gone == 0 and at > time and '(' .. items[#items][1] or ARGV[6]
local closed = {}
if ARGV[7] ~= '' then
  closed = redis.call('ZRANGEBYSCORE', days, '-inf', first_open_day(ARGV[3]) - 1)
elseif redis.call('XLEN', entries) == 0 then
  for _, day in ipairs(redis.call('ZRANGE', days, 0, -1)) do
    redis.call('UNLINK', ARGV[1] .. 'day:' .. day)
  end
  redis.call('UNLINK', days, ARGV[1] .. 'earlier')
end
if gone > 0 then
  note_deleted(state, newest)
end
if bytes > 0 then
  add_to(state, 'bytes', -bytes)
end
if redis.call('XLEN', entries) == 0 then
  redis.call('UNLINK', entries)
  if redis.call('EXISTS', live, ended, days) == 0 then
    redis.call('UNLINK', state, sizes)
  end
end
local goes_on = #names == batch or sessions + gone > 0 or begin ~= ARGV[6]
return { sessions, gone, goes_on and (#names > 0 and '(' .. names[#names] or ARGV[5]) or '', begin, closed }
