-- Runs commands in one step.
--
-- KEYS those of the commands   ARGV for each command the number of its words, and these
-- Returns the reply to the last one.

local place, reply = 1, nil
while ARGV[place] do
  local last = place + ARGV[place]
  reply = redis.call(unpack(ARGV, place + 1, last))
  place = last + 1
end
return reply
