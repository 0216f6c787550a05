-- Changes a session, if it is still as the caller read it, and adds an entry and its sums. The caller has decided
-- by storage/base/session_rules.py what becomes of the session.
-- If it runs twice, because its reply was lost, it changes nothing the second time and returns the first reply.
--
-- KEYS session, findings, once, the list that the session belongs to (live or ended), the other list, sizes, state,
--      entries, handles, days, sums of the entry's day
-- ARGV [1] `asked`, a msgpack map:
--        name, used_at (nil without a session), session_ms, entry_ms, once_ms
--        was        tokens reserved when it was read; nil if they may have changed since, up to `most`
--        reserved   tokens reserved afterwards; nil if `tokens` are added
--        opens      if it was unknown; `score` in its list
--        bytes      that it counts for in addition; `ends` if its findings are deleted; `finding`, the field of one
--        receipt    the field of the receipt of a named call, or ''
--        at, day, handle, amounts   of an entry
--      As they were read: [2] the beginning of the record  [3] the receipt
--      To be written: [4] the record  [5] the receipt or the finding  [6] the entry  [7] its group in the sums
--      Each is '' if there is none.
-- Returns the tokens reserved now; or, if the session is another, its fields s, r, u and the receipt.

local asked = cmsgpack.unpack(ARGV[1])
local said = redis.call('GET', KEYS[3])
if said then
  return said
end
need_hash(KEYS[1])
local found = redis.call('HMGET', KEYS[1], 's', 'r', 'u', asked.receipt)
local record, reserved, used_at, first = found[1] or '', number_of(found[2]), number_of(found[3]), found[4] or ''
if string.sub(record, 1, 16) ~= ARGV[2] or first ~= ARGV[3] or reserved ~= (asked.was or reserved)
  or reserved > (asked.most or reserved) then
  return found
end

-- Adds to the sums of a group. Sums that are damaged stay as they are: a summary then reads the entries of the day.
local function add_sums(row)
  local kept = redis.call('HGET', KEYS[11], ARGV[7])
  if kept then
    local sums = cmsgpack.unpack(kept)
    assert(#sums == #row)
    for place, sum in ipairs(sums) do
      row[place] = place < #row and row[place] + sum or math.max(row[place], sum)
    end
  end
  redis.call('HSET', KEYS[11], ARGV[7], cmsgpack.pack(row))
end

-- The id of an entry is its time, or that of the entry before it if that is later, and a number.
if ARGV[6] ~= '' then
  local newest = redis.pcall('XINFO', 'STREAM', KEYS[8])[8] or '0-0'
  local last, number = string.match(newest, '(%d+)-(%d+)')
  local ms = math.max(asked.at, last)
  number = ms == tonumber(last) and number + 1 or 0
  redis.call('XADD', KEYS[8], string.format('%.0f-%.0f', ms, number), 'e', ARGV[6], 't', asked.at)
  add_to(KEYS[7], 'bytes', 2 * #ARGV[6])
  redis.call('HSET', KEYS[7], 'wait', math.max(ms - asked.at, number_of(redis.call('HGET', KEYS[7], 'wait'))))
  pcall(add_sums, asked.amounts)
  redis.call('ZADD', KEYS[10], asked.day, asked.day)
  if asked.handle then
    redis.call('ZADD', KEYS[9], 'GT', asked.at, asked.handle)
  end
  for place = 8, 11 do
    redis.call('PEXPIRE', KEYS[place], asked.entry_ms + 86400000)
  end
end

local bytes = asked.bytes
if asked.opens then
  if record ~= '' then
    redis.call('UNLINK', KEYS[1], KEYS[2])
  end
  bytes, reserved, used_at = bytes - number_of(redis.pcall('HGET', KEYS[6], asked.name)), 0, 0
end
if asked.ends then
  for _, text in ipairs(redis.pcall('HVALS', KEYS[2])) do
    bytes = bytes - #text
  end
  -- First, because a full server refuses a script only at its first write, and allows UNLINK.
  redis.call('UNLINK', KEYS[2])
end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 's', ARGV[4])
  redis.call('ZREM', KEYS[5], asked.name)
  redis.call('ZADD', KEYS[4], asked.score, asked.name)
end
if asked.finding then
  need_hash(KEYS[2])
  bytes = bytes + #ARGV[5] - redis.call('HSTRLEN', KEYS[2], asked.finding)
  redis.call('HSET', KEYS[2], asked.finding, ARGV[5])
elseif ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], asked.receipt, ARGV[5])
end
reserved = asked.reserved or reserved + asked.tokens
if asked.used_at then
  redis.call('HSET', KEYS[1], 'r', reserved, 'u', math.max(used_at, asked.used_at))
end
for place = 1, 2 do
  redis.call('PEXPIRE', KEYS[place], asked.session_ms)
end
if bytes ~= 0 then
  add_to(KEYS[6], asked.name, bytes)
  add_to(KEYS[7], 'bytes', bytes)
end
redis.call('SET', KEYS[3], reserved, 'PX', asked.once_ms)
return reserved
