-- The oldest entries of an outbox. They stay there until they are dropped.
--
-- KEYS[1] the outbox   ARGV[1] how many at most
-- Answers its birth, the number of the first, then each entry behind its time. Nothing when it is empty.

local birth, first, last = unpack(redis.call('HMGET', KEYS[1], 'birth', 'first', 'last'))
if not birth or tonumber(first) > tonumber(last) then
  return {}
end
local numbers = {}
for number = first, math.min(last, first + ARGV[1] - 1) do
  numbers[#numbers + 1] = number
end
return { birth, tonumber(first), unpack(redis.call('HMGET', KEYS[1], unpack(numbers))) }
