-- Forgets a session that was last used, or had ended, long enough ago.
--
-- asked: idle_since, oldest
-- Answers 'gone' (there is none, any more), 'ended' or 'alive'.

local session = load()
if not session then
  return 'gone'
end
local over = session.ended_at and session.ended_at <= asked.oldest
if over or (not session.ended_at and session.last_used_at <= asked.idle_since) then
  redis.call('UNLINK', KEYS[1], KEYS[2])
  return 'gone'
end
return session.ended_at and 'ended' or 'alive'
