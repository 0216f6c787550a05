-- Whether what is written can be read, by a user who may run what every change runs: scripts, and TIME in them.
-- KEYS: probe
-- ARGV: value, how long it is kept (ms)
-- Answers the value.
redis.call('TIME')
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('GET', KEYS[1])
