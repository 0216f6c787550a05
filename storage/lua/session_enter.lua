-- A call arrives, or just a report: the session as it finds it, and the receipt of a call settled before.
-- Otherwise the report is applied; only that can write, and only what is new.
--
-- KEYS[4] the named call, if it is one   asked: now; reported, with used_tokens and turn, if there is a report
-- Answers the session, as it is if it has ended, nil if there is none; or a list: session, receipt.

local REMEMBERED_REPORTS = 64

local function is_seen(session)
  for _, report in ipairs(session.reports or {}) do
    if report[1] == asked.turn and report[2] == asked.used_tokens then
      return true
    end
  end
  return false
end

-- Session.reported of domain/budget.py. Answers whether the report changes the session, and a warning.
local function apply(session)
  if not asked.turn then
    if session.used_tokens == asked.used_tokens then
      return false
    end
    session.used_tokens, session.reserved_tokens = asked.used_tokens, 0
    return true
  end
  if is_seen(session) then
    return false
  end
  local warning
  if session.turn and asked.turn < session.turn then
    session.reports, session.reserved_tokens, warning = {}, 0, 'new_run'
  elseif session.turn ~= asked.turn then
    session.reserved_tokens = 0
  elseif session.used_tokens ~= asked.used_tokens then
    warning = 'turn_changed'
  end
  session.used_tokens, session.turn = asked.used_tokens, asked.turn
  session.reports = session.reports or {}
  table.insert(session.reports, { asked.turn, asked.used_tokens })
  if #session.reports > REMEMBERED_REPORTS then
    table.remove(session.reports, 1)
  end
  return true, warning
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
local changes, warning = apply(session)
if not changes then
  return cmsgpack.pack(session)
end
use(session, asked.now)
save(session)
session.warning = warning
return say(cmsgpack.pack(session))
