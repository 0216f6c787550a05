-- Appends entries out of many outboxes to their tenant's list, each once: a span remembers how far its
-- session's outbox was read. An entry's place is its time, or the list's end where that is later.
--
-- KEYS[1] the list   KEYS[2] when handles were stored   KEYS[3] the longest wait of an entry, in ms
-- KEYS[4…] the span of each session
-- ARGV[1] retention in ms   ARGV[2…] the birth of each outbox, then for each entry: which session, its number
-- there, and the entry

-- A clock further ahead than this is wrong, and must not hold up the list's time with its own.
local AHEAD_MS = 86400000

local spans = {}
for place = 4, #KEYS do
  local birth, number = unpack(redis.call('HMGET', KEYS[place], 'birth', 'number'))
  local known = birth == ARGV[place - 2]
  spans[place - 3] = { key = KEYS[place], birth = ARGV[place - 2], number = known and tonumber(number) or 0 }
end

-- All that could fail comes before the first write: a script is not rolled back.
local new = {}
for place = #spans + 2, #ARGV, 3 do
  local span, number = spans[tonumber(ARGV[place])], tonumber(ARGV[place + 1])
  if number > span.number then
    span.number = number
    local packed = ARGV[place + 2]
    local entry = cmsgpack.unpack(packed)
    local handle = entry.type == 'tool' and entry.details and entry.details.tool_output_handle
    new[#new + 1] = { span = span, packed = packed, at = entry.timestamp, handle = handle }
  end
end
if #new == 0 then
  return
end

local now = redis.call('TIME')[1] * 1000
local ms, seq = 1, 0
if redis.call('EXISTS', KEYS[1]) == 1 then
  local about = redis.call('XINFO', 'STREAM', KEYS[1])
  for place = 1, #about, 2 do
    if about[place] == 'last-generated-id' then
      ms, seq = string.match(about[place + 1], '(%d+)-(%d+)')
      ms, seq = tonumber(ms), tonumber(seq)
    end
  end
end

-- First: a full server refuses a script only the first of its writes, and not this one. What is written here
-- makes room elsewhere when it is dropped there.
redis.call('PEXPIRE', KEYS[1], ARGV[1])
local waited = tonumber(redis.call('GET', KEYS[3]) or 0)
for _, entry in ipairs(new) do
  local at = math.min(entry.at, now + AHEAD_MS)
  if at > ms then
    ms, seq = at, 0
  else
    seq = seq + 1
  end
  local id = string.format('%.0f-%.0f', ms, seq)
  redis.call('XADD', KEYS[1], id, 'e', entry.packed)
  entry.span.first = entry.span.first or id
  entry.span.last = id
  waited = math.max(waited, ms - entry.at)
  if entry.handle then
    local known = tonumber(redis.call('ZSCORE', KEYS[2], entry.handle) or 0)
    redis.call('ZADD', KEYS[2], math.max(known, entry.at), entry.handle)
  end
end

for _, span in ipairs(spans) do
  if span.last then
    redis.call('HSETNX', span.key, 'first', span.first)
    redis.call('HSET', span.key, 'birth', span.birth, 'number', span.number, 'last', span.last)
    redis.call('PEXPIRE', span.key, ARGV[1])
  end
end
redis.call('SET', KEYS[3], waited, 'PX', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[2]) == 1 then
  redis.call('PEXPIRE', KEYS[2], ARGV[1])
end
