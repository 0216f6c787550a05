-- Writes an entry that charges nothing; a session that is there is used by it, an ended one too.
--
-- KEYS[4] the outbox   ARGV[2] the entry   asked: id, at
-- Answers the entry's number in the outbox, as a string.

local before = said()
if before then
  return before
end
local time = redis.call('TIME')
local session = load()
if session then
  use(session, asked.at)
  if session.ended_at then
    redis.call('SET', KEYS[1], cmsgpack.pack(session), 'KEEPTTL')
  else
    save(session)
  end
end
return say(tostring(put_out(KEYS[4], ARGV[2], asked.id, time)))
