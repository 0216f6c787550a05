-- Ends a session; one that never ends is emptied instead, and goes on in its next epoch.
--
-- asked: now, never_ends
-- Answers the session, nil if there is none.

local before = said()
if before then
  return before
end
local session = load()
if not session then
  return nil
end
-- First: a full server refuses a script only the first of its writes, and not this one.
redis.call('UNLINK', KEYS[2])
if session.ended_at then
  return cmsgpack.pack(session)
end
if asked.never_ends then
  session.epoch = math.max(session.epoch + 1, asked.now)
  use(session, asked.now)
  session.used_tokens = nil
  session.turn = nil
  session.reports = nil
  session.reserved_tokens = 0
else
  session.ended_at = asked.now
end
return say(save(session))
