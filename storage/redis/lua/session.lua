-- Writes a session if it is still as the caller read it, and adds an entry and its sums.
-- The caller has decided by storage/base/session_rules.py how the session changes.
-- If the script runs twice because its reply was lost, the second run changes nothing and returns the first reply.
--
-- KEYS session, once
-- ARGV [1] `asked`, a msgpack map:
--        shard      what all keys of the shard begin with; `name` of the session
--        was        tokens reserved when it was read, nil if it was unknown; `reserved` tokens afterwards
--        is_known   whether there is a session afterwards; `uses` if this is a use of it; `has_ended`; `opens` if it was
--                   unknown
--        bytes      for which it counts in addition, without receipt and findings; `ends` if its findings are deleted
--        finding    the field of a finding; `keep_first` if an existing finding stays
--        receipt    the field of the receipt of a named call, or ''
--        at, day, handle, amounts of an entry; once_ms: how long the reply is kept; session_ms, entry_ms: after
--        which Redis deletes what no sweep has deleted; kept_ms, sums_ms: how long entries and sums
--        of days are kept; most_groups of a day; writer, the process, of which Redis counts the entries that it
--        wrote to the shard; writer_ms: as long as it writes so often
--      As they were read, '' for none: [2] the beginning of the record  [3] the receipt
--      To be written, '' for none: [4] the record  [5] the receipt or the finding  [6] the entry  [7] its group
--      [8] the group for its sums if the day has `most_groups`
-- Returns the last use and the writer's number of entries, or nil if the session or the receipt has changed.

local asked = cmsgpack.unpack(ARGV[1])
local reply = redis.call('GET', KEYS[2])
if reply then
  return reply
end
local shard, session, findings = asked.shard, KEYS[1], asked.shard .. 'findings:' .. asked.name
need_hash(session)
local record, reserved, used_at, first = unpack(redis.call('HMGET', session, 's', 'r', 'u', asked.receipt))
reserved, used_at = number_of(reserved), number_of(used_at)
if string.sub(record or '', 1, 16) ~= ARGV[2] or (first or '') ~= ARGV[3] or reserved ~= (asked.was or reserved) then
  return nil
end
local state, sizes, bytes, time = shard .. 'state', shard .. 'sizes', asked.bytes, now()
local written = 0

-- Damaged sums stay as they are: a summary then reads the entries of the day.
local function add_sums(key, row)
  local group = ARGV[7]
  local packed = redis.call('HGET', key, group)
  if not packed and redis.call('HLEN', key) >= asked.most_groups then
    group = ARGV[8]
    packed = redis.call('HGET', key, group)
  end
  if packed then
    local sums = cmsgpack.unpack(packed)
    assert(#sums == #row)
    for place, sum in ipairs(sums) do
      row[place] = place < #row and row[place] + sum or math.max(row[place], sum)
    end
  end
  redis.call('HSET', key, group, cmsgpack.pack(row))
end

-- The id of an entry is a number after its time, or after the time of the previous entry if that is later. The entry's
-- retention begins at its time, or now if the clock of its writer differs by more than a minute.
local function add_entry(entries, handles, days)
  local last, number = string.match(redis.pcall('XINFO', 'STREAM', entries)[8] or '0-0', '(%d+)-(%d+)')
  local ms, at = math.max(asked.at, last), runs_on(asked.at) and asked.at or time
  number = ms == tonumber(last) and number + 1 or 0
  redis.call('XADD', entries, string.format('%.0f-%.0f', ms, number), 'e', ARGV[6], 't', at)
  add_to(state, 'bytes', entry_bytes(ARGV[6]))
  redis.call('HSET', state, 'wait', math.max(ms - asked.at, number_of(redis.call('HGET', state, 'wait'))))
  local day = math.max(asked.day, first_open_day(asked.kept_ms))
  local sums = shard .. 'day:' .. day
  pcall(add_sums, sums, asked.amounts)
  redis.call('ZADD', days, day, day)
  if asked.handle then
    redis.call('ZADD', handles, 'GT', at, asked.handle)
  end
  written = redis.call('INCR', shard .. 'wrote:' .. asked.writer)
  redis.call('PEXPIRE', shard .. 'wrote:' .. asked.writer, asked.writer_ms)
  redis.call('PEXPIRE', entries, asked.entry_ms)
  redis.call('PEXPIRE', handles, asked.entry_ms)
  redis.call('PEXPIRE', days, asked.sums_ms)
  redis.call('PEXPIRE', sums, asked.sums_ms)
end

if ARGV[6] ~= '' then
  add_entry(shard .. 'entries', shard .. 'handles', shard .. 'days')
end
if asked.opens then
  bytes, used_at = bytes - number_of(redis.pcall('HGET', sizes, asked.name)), 0
end
if asked.ends then
  local texts = redis.pcall('HGETALL', findings)
  for place = 1, #texts, 2 do
    bytes = bytes - field_bytes(texts[place], #texts[place + 1])
  end
  -- This first: a full server refuses a script only at its first write, and it allows UNLINK.
  redis.call('UNLINK', findings)
end
if ARGV[4] ~= '' then
  redis.call('HSET', session, 's', ARGV[4])
  redis.call('ZREM', shard .. (asked.has_ended and 'live' or 'ended'), asked.name)
  redis.call('ZADD', shard .. (asked.has_ended and 'ended' or 'live'), asked.has_ended and time or 0, asked.name)
end
if asked.finding then
  need_hash(findings)
  local size = redis.call('HSTRLEN', findings, asked.finding)
  if not (asked.keep_first and size > 0) then
    bytes = bytes + field_bytes(asked.finding, #ARGV[5]) - field_bytes(asked.finding, size)
    redis.call('HSET', findings, asked.finding, ARGV[5])
  end
elseif ARGV[5] ~= '' then
  bytes = bytes + field_bytes(asked.receipt, #ARGV[5]) - field_bytes(asked.receipt, #(first or ''))
  redis.call('HSET', session, asked.receipt, ARGV[5])
end
if asked.is_known then
  used_at = asked.uses and math.max(used_at, time) or used_at
  redis.call('HSET', session, 'r', asked.reserved, 'u', used_at)
  if asked.handle then
    redis.call('HSET', session, 'h', 1)
  end
  redis.call('PEXPIRE', session, asked.has_ended and asked.entry_ms or asked.session_ms)
  redis.call('PEXPIRE', findings, asked.session_ms)
end
if bytes ~= 0 then
  add_to(sizes, asked.name, bytes)
  add_to(state, 'bytes', bytes)
end
reply = string.format('%.0f %.0f', used_at, written)
redis.call('SET', KEYS[2], reply, 'PX', asked.once_ms)
return reply
