-- Counters. Every other script begins with these functions.

-- `kept` is a reply. Returns 0 for what is not there or damaged.
local function number_of(kept)
  return type(kept) == 'string' and tonumber(string.match(kept, '^%d+$')) or 0
end

-- Deletes a key that is no hash.
local function need_hash(key)
  if type(redis.pcall('HLEN', key)) == 'table' then
    redis.call('UNLINK', key)
  end
end

-- Adds to a field of a hash of counters. A damaged counter starts from 0.
local function add_to(key, field, amount)
  need_hash(key)
  redis.call('HSET', key, field, math.max(0, number_of(redis.call('HGET', key, field)) + amount))
end

-- Adds to `held`, after `due` was changed. A counter that is damaged or missing is counted again from `due`; it is
-- deleted with the last result.
local function add_to_held(held, due, amount)
  local kept = redis.pcall('GET', held)
  local total = number_of(kept) + amount
  if number_of(kept) == 0 and kept ~= '0' then
    total = 0
    for _, member in ipairs(redis.call('ZRANGE', due, 0, -1)) do
      total = total + (string.match(member, ' (%d+) ') or 0)
    end
  end
  redis.call(unpack(redis.call('EXISTS', due) == 1 and { 'SET', held, math.max(0, total) } or { 'UNLINK', held }))
end
