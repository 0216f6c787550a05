-- Counters. Every other script begins with these functions.

-- `kept` is a reply. Returns 0 for what is not there, and nil for what is damaged.
local function number_of(kept)
  local number = not kept and 0 or type(kept) == 'string' and string.match(kept, '^%d+$') and tonumber(kept)
  return number and number <= 9007199254740992 and number or nil
end

-- Adds to a field of a hash of counters. A damaged counter starts from 0; a key of another type is replaced.
local function add_to(key, field, amount)
  local kept = redis.pcall('HGET', key, field)
  if type(kept) == 'table' then
    redis.call('UNLINK', key)
  end
  redis.call('HSET', key, field, math.max(0, (number_of(kept) or 0) + amount))
end

-- Deletes a session and its findings, and its name in `list`.
local function delete_session(name, prefixes, list, sizes, state)
  redis.call('UNLINK', prefixes[1] .. name, prefixes[2] .. name)
  redis.call('ZREM', list, name)
  add_to(state, 'session_bytes', -(number_of(redis.pcall('HGET', sizes, name)) or 0))
  redis.pcall('HDEL', sizes, name)
end

-- Adds to `held`, after `due` was changed. A counter that is damaged or missing is counted again from `due`.
local function add_to_held(held, due, amount)
  local total = number_of(redis.pcall('GET', held) or '')
  if not total then
    total, amount = 0, 0
    for _, member in ipairs(redis.call('ZRANGE', due, 0, -1)) do
      total = total + (string.match(member, ' (%d+) ') or 0)
    end
  end
  redis.call('SET', held, math.max(0, total + amount))
end
