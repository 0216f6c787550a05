-- Lists a session for its tenant: it may come to be, and its outbox may fill, for as long as a lease lasts.
--
-- KEYS[1] the tenant's sessions   KEYS[2] those whose outbox may hold something, by when they were last listed
-- ARGV[1] the session's id

local time = redis.call('TIME')
redis.call('ZADD', KEYS[1], 0, ARGV[1])
redis.call('ZADD', KEYS[2], time[1] .. string.format('%03d', math.floor(time[2] / 1000)), ARGV[1])
