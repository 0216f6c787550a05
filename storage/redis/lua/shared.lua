-- Functions for time, counters and deletions. Every other script begins with them.

-- The time of this server (Unix ms). No script decides by the clock of its caller.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Whether this server's clock agrees with the caller's: it has not jumped by more than a minute.
local function runs_on(expected)
  return math.abs(now() - expected) <= 60000
end

-- The number in `reply`, which is that of a counter; 0 if it is missing or damaged.
local function number_of(reply)
  return type(reply) == 'string' and tonumber(string.match(reply, '^%d+$')) or 0
end

-- Deletes a key that is not a hash.
local function need_hash(key)
  if type(redis.pcall('HLEN', key)) == 'table' then
    redis.call('UNLINK', key)
  end
end

-- Adds to a field of a hash of counters. A damaged counter starts from 0.
local function add_to(key, field, amount)
  need_hash(key)
  redis.call('HSET', key, field, math.max(0, number_of(redis.call('HGET', key, field)) + amount))
end

-- Deletes a session, its findings and its name in a list. Returns the bytes for which it counted.
-- The keys first: a full server refuses a script only at its first write, and it allows UNLINK.
local function delete_session(shard, list, sizes, name)
  redis.call('UNLINK', shard .. 'session:' .. name, shard .. 'findings:' .. name)
  redis.call('ZREM', list, name)
  local bytes = number_of(redis.pcall('HGET', sizes, name))
  redis.pcall('HDEL', sizes, name)
  return bytes
end

-- The approximate bytes of an entry: in the stream, and in `handles` if it is about a stored result. Measured, as is
-- `field_bytes`.
local function entry_bytes(packed)
  return #packed + 90 + (string.find(packed, 'tool_output_handle', 1, true) and 170 or 0)
end

-- The approximate bytes that a receipt or a finding of this size takes in its hash.
local function field_bytes(name, size)
  return size > 0 and math.floor(#name + 1.125 * size + 100) or 0
end

-- Deletes an entry, given as in a reply of XRANGE. Returns the bytes for which it counted.
local function delete_entry(entries, item)
  redis.call('XDEL', entries, item[1])
  return entry_bytes(item[2][2])
end

-- Notes the newest time (ms) of deleted entries: some entries up to that time are missing.
local function note_deleted(state, at)
  need_hash(state)
  redis.call('HSET', state, 'deleted', string.format('%.0f', math.max(at, number_of(redis.call('HGET', state, 'deleted')))))
end

-- The first day, since 1970, to which sums are added. The sums of a day before it are packed, an hour after the last
-- of its entries has reached the age `kept` (ms).
local function first_open_day(kept)
  return math.floor((now() - kept - 3600000) / 86400000)
end

-- Adds to `held`, after `due` was changed. If the counter is damaged or missing, it is counted again from `due`. It is
-- deleted with the last result.
local function add_to_held(held, due, amount)
  local counter = redis.pcall('GET', held)
  local total = number_of(counter) + amount
  if number_of(counter) == 0 and counter ~= '0' then
    total = 0
    for _, member in ipairs(redis.call('ZRANGE', due, 0, -1)) do
      total = total + (string.match(member, ' (%d+) ') or 0)
    end
  end
  redis.call(unpack(redis.call('EXISTS', due) == 1 and { 'SET', held, math.max(0, total) } or { 'UNLINK', held }))
end
