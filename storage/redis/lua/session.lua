-- One change of a session: check, charge, entry and sums, by the rules of storage/base/session_rules.py.
-- If it runs twice, because its reply was lost, it changes nothing the second time and returns the first reply.
--
-- KEYS session, findings, once, live, ended, sizes, state, entries, handles, days, sums of the entry's day
-- ARGV [1] `asked`, a msgpack map: step, name, now, session_ms, entry_ms, once_ms; full, crowded (the tenant has
--      reached its bound of bytes, of sessions); admitted (the entry is kept past the bound of bytes); replace (a
--      damaged session), damaged (a receipt); the arguments of the step.
--      With an entry: [2] the entry  [3] its group in the sums  [4] the receipt of a named call, or the text of
--      the finding `field`. With a finding: [2] its text.
-- Returns a word ('' if it was done), the session and, after 'again', the receipt. A session is a msgpack map without
-- the fields that are None; it is stored after the first eight digits of its SHA-1.

local asked = cmsgpack.unpack(ARGV[1])
local said = redis.call('GET', KEYS[3])
if said then
  return cmsgpack.unpack(said)
end

local function sealed(packed)
  return string.sub(redis.sha1hex(packed), 1, 8) .. packed
end

local found = redis.pcall('HMGET', KEYS[1], 's', 'f')
local kept = found[1] and string.sub(found[1], 9)
local damaged = found.err or kept and sealed(kept) ~= found[1] or not number_of(found[2])
if damaged and not asked.replace then
  return { 'damaged' }
end
kept = not damaged and kept
local session = kept and cmsgpack.unpack(kept)
local was_ended = session and session.ended_at

local function size()
  return session and 1024 + #(session.policy or '') + #(session.model or '') or 0
end
local size_before = size()

local function fresh(now)
  return { epoch = 0, created_at = now, last_used_at = now, reserved_tokens = 0 }
end

local function use(now)
  session.last_used_at = math.max(session.last_used_at, now)
end

local function count(bytes)
  if bytes ~= 0 then
    add_to(KEYS[6], asked.name, bytes)
    add_to(KEYS[7], 'session_bytes', bytes)
  end
end

local function say(word, extra)
  local reply = { word, session and cmsgpack.pack(session) or '', extra }
  redis.call('SET', KEYS[3], cmsgpack.pack(reply), 'PX', asked.once_ms)
  return reply
end

local function save()
  if damaged then
    redis.call('UNLINK', KEYS[1], KEYS[2])
    count(-(number_of(redis.pcall('HGET', KEYS[6], asked.name)) or 0))
  end
  redis.call('HSET', KEYS[1], 's', sealed(cmsgpack.pack(session)))
  for place = 1, 2 do
    redis.call('PEXPIRE', KEYS[place], session.ended_at and asked.entry_ms or asked.session_ms)
  end
  if not kept or was_ended ~= session.ended_at then
    redis.call('ZREM', session.ended_at and KEYS[4] or KEYS[5], asked.name)
    redis.call('ZADD', session.ended_at and KEYS[5] or KEYS[4], session.ended_at or 0, asked.name)
  end
  count(size() - size_before)
end

-- Returns the word of a refusal, or nil.
local function no_room(opens)
  return asked.full and not asked.admitted and 'full' or opens and asked.crowded and 'crowded' or nil
end

-- Session.budget and Budget.fits of domain/budget.py.
local function fits()
  local declared, undeclared = 0, 0
  for _, field in ipairs({ 'buffer_tokens', 'max_output_tokens' }) do
    declared = declared + (session[field] or 0)
    undeclared = undeclared + (session[field] and 0 or asked[field])
  end
  local window = session.context_window or asked.context_window
  if session.context_window then
    undeclared = math.min(undeclared, math.floor(window / 3))
  end
  local limit = math.max(0, window - declared - undeclared)
  local enforced = asked.enforce or session.context_window or session.used_tokens
  return not enforced or asked.tokens <= math.max(0, limit - (session.used_tokens or 0) - session.reserved_tokens)
end

-- Session.reported of domain/budget.py. Returns whether it changed the session, and a warning.
local function report()
  local used, turn = asked.used_tokens, asked.turn
  local seen, reserved, warning = session.reports or {}, 0, nil
  if not turn then
    if used == session.used_tokens then
      return false
    end
    session.used_tokens, session.reserved_tokens = used, 0
    return true
  end
  for _, one in ipairs(seen) do
    if one.used_tokens == used and one.turn == turn then
      return false
    end
  end
  if session.turn and turn < session.turn then
    seen, warning = {}, 'new_run'
  elseif session.turn == turn then
    reserved, warning = session.reserved_tokens, used ~= session.used_tokens and 'turn_changed' or nil
  end
  seen[#seen + 1] = { used_tokens = used, turn = turn }
  if #seen > asked.most_reports then
    table.remove(seen, 1)
  end
  session.used_tokens, session.turn, session.reserved_tokens, session.reports = used, turn, reserved, seen
  return true, warning
end

local function reported()
  local changed, warning = report()
  if not changed then
    return { '', cmsgpack.pack(session) }
  end
  use(asked.now)
  save()
  return say('', warning)
end

-- Returns true for an entry of a replay that Redis already has.
local function is_known()
  local from = asked.in_doubt and asked.at .. '-0'
  while from do
    local found = redis.call('XRANGE', KEYS[8], from, asked.at + 60000, 'COUNT', 500)
    for _, item in ipairs(found) do
      if string.find(item[2][2], asked.id, 1, true) then
        return true
      end
    end
    from = #found == 500 and '(' .. found[500][1]
  end
end

-- Sums that are damaged stay as they are: a summary then reads the entries of the day.
local function add_sums(row)
  local found = redis.pcall('HGET', KEYS[11], ARGV[3])
  local is_whole, sums = pcall(cmsgpack.unpack, type(found) == 'string' and found or '')
  if found then
    if not is_whole or type(sums) ~= 'table' or #sums ~= #row then
      return
    end
    for place = 1, #row do
      local sum = tonumber(sums[place])
      if not sum then
        return
      end
      row[place] = place < #row and row[place] + sum or math.max(row[place], sum)
    end
  end
  redis.call('HSET', KEYS[11], ARGV[3], cmsgpack.pack(row))
end

-- The id of an entry is its time (at least that of the entry before it) and a number that grows.
local function add_entry()
  local kept = redis.pcall('HMGET', KEYS[7], 'ms', 'n', 'wait')
  local ms, number = math.max(asked.at, number_of(kept[1]) or 0), (number_of(kept[2]) or 0) + 1
  local function add(try)
    return try('XADD', KEYS[8], string.format('%.0f-%.0f', ms, number), 'e', ARGV[2])
  end
  if type(add(redis.pcall)) == 'table' then
    -- A damaged counter gave an id that is not after the newest.
    local newest = redis.call('XREVRANGE', KEYS[8], '+', '-', 'COUNT', 1)[1]
    local last_ms, last_number = string.match(newest and newest[1] or '0-0', '(%d+)-(%d+)')
    ms, number = math.max(ms, tonumber(last_ms)), math.max(number, tonumber(last_number) + 1)
    add(redis.call)
  end
  add_to(KEYS[7], 'entry_bytes', 2 * #ARGV[2])
  redis.call('HSET', KEYS[7], 'ms', ms, 'n', number, 'wait', math.max(ms - asked.at, number_of(kept[3]) or 0))
  add_sums(asked.amounts)
  redis.call('ZADD', KEYS[10], asked.day, asked.day)
  if asked.handle then
    redis.call('ZADD', KEYS[9], 'GT', asked.at, asked.handle)
  end
  for place = 8, 11 do
    redis.call('PEXPIRE', KEYS[place], asked.entry_ms + 86400000)
  end
end

-- Returns the receipt of a call that was settled before, unless it is damaged: then `asked.damaged` is its SHA-1.
local function first_receipt(epoch)
  local first = session and asked.call and redis.call('HGET', KEYS[1], epoch .. ':' .. asked.call)
  return not (first and asked.damaged and asked.damaged == redis.sha1hex(first)) and first
end

local function keep(text)
  if asked.full then
    return
  end
  local before = redis.pcall('HSTRLEN', KEYS[2], asked.field)
  if type(before) ~= 'number' then
    redis.call('UNLINK', KEYS[2])
    before = 0
  end
  redis.call('HSET', KEYS[2], asked.field, text)
  redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1]))
  redis.call('HINCRBY', KEYS[1], 'f', #text - before)
  count(#text - before)
end

local steps = {}

function steps.enter()
  if was_ended then
    return { 'ended' }
  end
  local first = first_receipt(session and session.epoch)
  if first then
    return { 'again', kept, first }
  end
  local refusal = no_room(not session)
  if refusal then
    return { refusal }
  end
  session = session or fresh(asked.now)
  return asked.used_tokens and reported() or { '', cmsgpack.pack(session) }
end

function steps.report()
  local refusal = was_ended and 'ended' or not session and no_room(true)
  if refusal then
    return { refusal }
  end
  session = session or fresh(asked.now)
  return reported()
end

function steps.charge()
  local first = first_receipt(asked.epoch)
  if first then
    return { 'again', kept, first }
  end
  local is_new = not session
  session = session or fresh(asked.at)
  local refusal = was_ended and 'ended' or session.epoch ~= asked.epoch and 'conflict' or no_room(is_new)
    or not asked.forced and not fits() and 'refused'
  if refusal then
    return { refusal }
  end
  if is_known() then
    return say('')
  end
  add_entry()
  session.reserved_tokens = session.reserved_tokens + asked.tokens
  use(asked.at)
  save()
  if asked.call then
    redis.call('HSET', KEYS[1], asked.epoch .. ':' .. asked.call, ARGV[4])
    count(asked.text_bytes)
  elseif asked.field then
    keep(ARGV[4])
  end
  return say('')
end

function steps.append()
  if no_room() then
    return { 'full' }
  end
  if not is_known() then
    add_entry()
    if session then
      use(asked.at)
      save()
    end
  end
  return say('')
end

function steps.put()
  local refusal = (not session or was_ended) and no_room(true)
  if refusal then
    return { refusal }
  end
  if not session then
    session = fresh(asked.now)
  elseif was_ended then
    local epoch = math.max(session.epoch + 1, session.ended_at)
    session = fresh(asked.now)
    session.epoch = epoch
  end
  for field, value in pairs(asked.set) do
    session[field] = value
  end
  for _, field in ipairs(asked.clear) do
    session[field] = nil
  end
  use(asked.now)
  save()
  return say('')
end

function steps.finish()
  if damaged then
    session = fresh(asked.now)
  elseif not session or was_ended then
    return { '', kept or '' }
  end
  -- First, because a full server refuses a script only at its first write, and allows UNLINK.
  redis.call('UNLINK', KEYS[2])
  if not damaged then
    count(-(found[2] or 0))
    redis.call('HDEL', KEYS[1], 'f')
  end
  if asked.never_ends then
    session.epoch = math.max(session.epoch + 1, asked.now)
    session.used_tokens, session.turn, session.reports, session.reserved_tokens = nil, nil, nil, 0
    use(asked.now)
  else
    session.ended_at = asked.now
  end
  save()
  return say('')
end

function steps.keep()
  if session and not was_ended and session.epoch == asked.epoch then
    keep(ARGV[2])
  end
  return { '' }
end

return steps[asked.step]()
