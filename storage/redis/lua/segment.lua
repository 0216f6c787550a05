-- Stores a segment of a draft. Returns the number of its segments.
--
-- KEYS the body   ARGV [1] its lifetime (ms)  [2] number of the segment  [3] the segment

redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HLEN', KEYS[1])
