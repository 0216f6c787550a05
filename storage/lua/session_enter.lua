-- A call arrives, or just a report: the session as it finds it, and the receipt of a call settled before.
-- Otherwise the report is applied; only that can write, and only what is new.
--
-- KEYS[4] the named call, if it is one   asked: now; reported, with used_tokens and turn, if there is a report
-- Answers the session, as it is if it has ended, nil if there is none; or a list: session, receipt.

local function is_new(session)
  if asked.turn and session.turn then
    return asked.turn > session.turn
  end
  return asked.turn ~= nil or asked.used_tokens ~= session.used_tokens
end

local before = asked.reported and said()
if before then
  return before
end
local session = load()
if session and session.ended_at then
  return cmsgpack.pack(session)
end
local receipt = session and KEYS[4] and recall(KEYS[4], session, session.epoch)
if receipt then
  return { cmsgpack.pack(session), receipt }
end
if not asked.reported then
  return session and cmsgpack.pack(session)
end
session = session or fresh(asked.now)
if not is_new(session) then
  return cmsgpack.pack(session)
end
session.used_tokens = asked.used_tokens
session.turn = asked.turn or session.turn
session.reserved_tokens = 0
use(session, asked.now)
return say(save(session))
