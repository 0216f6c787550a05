-- What a session is and what may become of it: storage/accounts.py, where it has to be atomic.
-- Stands before every other session script that names it. A session is a msgpack map of its fields; what is
-- absent is None. `born` is when its id was first written down: it tells this life's calls from another's.
--
-- KEYS[1] the session   KEYS[2] its findings   KEYS[3] what was said to this operation, a string
-- ARGV[1] `asked`, a msgpack map: `session_ms` and `entry_ms` are the retentions, the rest each script's own

local asked = cmsgpack.unpack(ARGV[1])

-- A client repeats an operation at once or not at all.
local SAID_MS = 60000

local function said()
  return redis.call('GET', KEYS[3])
end

local function say(reply)
  redis.call('SET', KEYS[3], reply, 'PX', SAID_MS)
  return reply
end

local function load()
  local kept = redis.call('GET', KEYS[1])
  return kept and cmsgpack.unpack(kept) or nil
end

local function fresh(now)
  return { epoch = 0, born = now, created_at = now, last_used_at = now, reserved_tokens = 0 }
end

local function use(session, now)
  session.last_used_at = math.max(session.last_used_at, now)
end

-- Findings expire at the same instant as their session.
local function save(session)
  local packed = cmsgpack.pack(session)
  local lifetime = session.ended_at and asked.entry_ms or asked.session_ms
  redis.call('SET', KEYS[1], packed, 'PX', lifetime)
  redis.call('PEXPIRE', KEYS[2], lifetime)
  return packed
end

-- The receipt of a named call, or false. It goes with its life, its epoch and, at last, its time.
local function recall(key, session, epoch)
  local kept = session and redis.call('GET', key)
  return kept and cmsgpack.unpack(kept)[session.born .. ':' .. epoch] or false
end

local function remember(key, session, receipt)
  local kept = redis.call('GET', key)
  local receipts = kept and cmsgpack.unpack(kept) or {}
  receipts[session.born .. ':' .. session.epoch] = receipt
  redis.call('SET', key, cmsgpack.pack(receipts), 'PX', asked.session_ms)
end

-- Entries wait in the session's outbox until they are listed for the tenant (entry_take.lua). `birth` names
-- this outbox; `last` counts its entries. The time stands before an entry, in microseconds and 16 digits. It is
-- asked for before the first write: it may be refused, and a script is not rolled back.
local function put_out(key, entry, id, time)
  local number = redis.call('HINCRBY', key, 'last', 1)
  redis.call('HSET', key, number, time[1] .. string.format('%06d', time[2]) .. entry)
  if number == 1 then
    redis.call('HSET', key, 'birth', id, 'first', 1)
  end
  redis.call('PEXPIRE', key, asked.entry_ms)
  return number
end
