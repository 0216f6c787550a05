-- Keeps a finding for as long as its session lives; not where that life is over.
--
-- asked: epoch, field   ARGV[2] the text

local session = load()
if session and not session.ended_at and session.epoch == asked.epoch then
  redis.call('HSET', KEYS[2], asked.field, ARGV[2])
  redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1]))
end
