-- Keeps one segment of a body that is being written. Replies how many there are.
--
-- KEYS[1] the body   ARGV[1] its lifetime in ms   ARGV[2] the segment's number   ARGV[3] the segment

redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return redis.call('HLEN', KEYS[1])
