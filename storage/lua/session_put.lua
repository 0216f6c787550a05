-- Opens or changes a session; one that has ended starts anew, in its next epoch.
--
-- asked: now, set (fields and values), clear (fields)
-- Answers the session.

local before = said()
if before then
  return before
end
local session = load()
if not session then
  session = fresh(asked.now)
elseif session.ended_at then
  local anew = fresh(asked.now)
  anew.epoch = math.max(session.epoch + 1, session.ended_at)
  anew.born = session.born
  session = anew
end
for field, value in pairs(asked.set) do
  session[field] = value
end
for _, field in ipairs(asked.clear) do
  session[field] = nil
end
use(session, asked.now)
return say(save(session))
