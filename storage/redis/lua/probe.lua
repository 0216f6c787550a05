-- Makes every kind of change that the other scripts make, on keys that expire: fails if the ACL forbids one.
--
-- KEYS a string, a hash, a zset, a stream, a set   ARGV [1] a value  [2] lifetime of the keys (ms)

redis.call('SET', KEYS[1], ARGV[1])
redis.call('HSET', KEYS[2], 'f', 1)
redis.call('HINCRBY', KEYS[2], 'f', 1)
redis.call('ZADD', KEYS[3], 1, 'm')
redis.call('XADD', KEYS[4], '1-1', 'f', 1)
redis.call('SADD', KEYS[5], 'm')
for _, key in ipairs(KEYS) do
  redis.call('PEXPIRE', key, ARGV[2])
end
redis.call('UNLINK', KEYS[5])
return redis.call('GET', KEYS[1])
