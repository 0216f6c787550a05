-- Charges a session and writes the entry, if the tokens fit or `forced` says so: reserve and settle.
--
-- KEYS[4] the outbox   KEYS[5] the named call, if it is one
-- ARGV[2] the entry   ARGV[3] the receipt of a named call
-- asked: id, at, epoch, tokens, forced, required, context_window, buffer_tokens, max_output_tokens
-- Answers, when it is charged, a msgpack list: the budget before, as limit, used, reserved and enforced, and the
-- entry's number in the outbox; else a list: 'replayed', session, receipt | 'refused' | 'changed', session.

local function limit_of(session)
  local window = session.context_window or asked.context_window
  local declared = (session.buffer_tokens or 0) + (session.max_output_tokens or 0)
  local undeclared = (session.buffer_tokens and 0 or asked.buffer_tokens)
    + (session.max_output_tokens and 0 or asked.max_output_tokens)
  if session.context_window then
    undeclared = math.min(undeclared, math.floor(window / 3))
  end
  return math.max(0, window - declared - undeclared)
end

local before = said()
if before then
  return before
end
local session = load()
local receipt = KEYS[5] and recall(KEYS[5], session, asked.epoch)
if receipt then
  return { 'replayed', cmsgpack.pack(session), receipt }
end
session = session or fresh(asked.at)
if session.ended_at or session.epoch ~= asked.epoch then
  return { 'changed', cmsgpack.pack(session) }
end

local limit, used, reserved = limit_of(session), session.used_tokens or 0, session.reserved_tokens
local enforced = asked.required or session.context_window ~= nil or session.used_tokens ~= nil
if enforced and not asked.forced and asked.tokens > math.max(0, limit - used - reserved) then
  return { 'refused' }
end
local time = redis.call('TIME')
session.reserved_tokens = reserved + asked.tokens
use(session, asked.at)
save(session)
if KEYS[5] then
  remember(KEYS[5], session, ARGV[3])
end
local number = put_out(KEYS[4], ARGV[2], asked.id, time)
return say(cmsgpack.pack({ limit, used, reserved, enforced, number }))
