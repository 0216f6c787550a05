-- Runs commands in one step.
--
-- KEYS the keys of the commands   ARGV for each command the number of its words, then the words
-- Returns the reply to the last command.

local place, reply = 1, nil
while ARGV[place] do
  local last = place + ARGV[place]
  reply = redis.call(unpack(ARGV, place + 1, last))
  place = last + 1
end
return reply
