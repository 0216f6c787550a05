-- Looks through a piece of a tenant's list: for the entries that are wanted, or for their sums.
--
-- KEYS[1] the list   KEYS[2] the longest wait of an entry   KEYS[3] the span of the wanted session, if one is
-- ARGV[1] `asked`, a msgpack map: after (a place), upto (one, too), most (entries to look at), need (entries to
-- find), wanted (fields and values), since, until (ms), group_by (fields, or 'day': asks for sums)
-- Answers the place up to which it looked and 1 if there may be more, else 0; then either place and entry of
-- each that was found, or one msgpack list of rows: the group, entries, failed, bytes, tokens_in, tokens_out,
-- tokens_saved, cost_usd, the sum of latency, its maximum, the earliest time and the latest, the
-- sum of details.observed_tokens_saved. A group is a list: for each field '=' and its value, or '' where there
-- is none; a day is its number.

local asked = cmsgpack.unpack(ARGV[1])
local since, till = asked.since, asked['until']
local DAY_MS = 86400000
local LAST = '18446744073709551615'
local UNSAID = { status = 'ok' }

local function is_later(place, other)
  local ms, seq = string.match(place, '(%d+)-(%d+)')
  local other_ms, other_seq = string.match(other, '(%d+)-(%d+)')
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms > other_ms or (ms == other_ms and tonumber(seq) > tonumber(other_seq))
end

-- No entry stands before its time, nor further behind it than the longest wait. Nil where there can be none.
local function bounds()
  local after, first, last = asked.after, nil, asked.upto
  local function not_before(place)
    if is_later(place, first or after) then
      first = place
    end
  end
  local function not_after(place)
    if not last or is_later(last, place) then
      last = place
    end
  end
  if since then
    not_before(string.format('%.0f-0', math.max(0, since)))
  end
  if till then
    not_after(string.format('%.0f-%s', math.max(0, till + (redis.call('GET', KEYS[2]) or 0)), LAST))
  end
  if KEYS[3] then
    local span = redis.call('HMGET', KEYS[3], 'first', 'last')
    if not span[1] then
      return nil
    end
    not_before(span[1])
    not_after(span[2])
  end
  return first or '(' .. after, last or '+'
end

local function is_wanted(entry)
  for field, value in pairs(asked.wanted) do
    if (entry[field] or UNSAID[field]) ~= value then
      return false
    end
  end
  return not (since and entry.timestamp < since) and not (till and entry.timestamp >= till)
end

local function value_of(entry, field)
  if field == 'day' then
    return string.format('=%.0f', math.floor(entry.timestamp / DAY_MS))
  end
  local value = entry[field] or UNSAID[field]
  return value and '=' .. value or ''
end

local function add(row, entry)
  local latency = entry.latency or 0
  row[2] = row[2] + 1
  row[3] = row[3] + (entry.status == 'failed' and 1 or 0)
  row[4] = row[4] + (entry.details and entry.details.bytes or 0)
  row[5] = row[5] + (entry.tokens_in or 0)
  row[6] = row[6] + (entry.tokens_out or 0)
  row[7] = row[7] + (entry.tokens_saved or 0)
  row[8] = row[8] + (entry.cost_usd or 0)
  row[9] = row[9] + latency
  row[10] = math.max(row[10], latency)
  row[11] = math.min(row[11], entry.timestamp)
  row[12] = math.max(row[12], entry.timestamp)
  row[13] = row[13] + (entry.details and entry.details.observed_tokens_saved or 0)
end

local function rows_of(entries)
  local rows, row_of = {}, {}
  for _, entry in ipairs(entries) do
    local group, name = {}, ''
    for place, field in ipairs(asked.group_by) do
      group[place] = value_of(entry, field)
      name = name .. #group[place] .. group[place]
    end
    if not row_of[name] then
      row_of[name] = { group, 0, 0, 0, 0, 0, 0, 0, 0, 0, entry.timestamp, entry.timestamp, 0 }
      rows[#rows + 1] = row_of[name]
    end
    add(row_of[name], entry)
  end
  return rows
end

local from, to = bounds()
local seen = from and redis.call('XRANGE', KEYS[1], from, to, 'COUNT', asked.most) or {}
local upto, more = asked.after, #seen == asked.most
local found, entries = {}, {}
for number, item in ipairs(seen) do
  local entry = cmsgpack.unpack(item[2][2])
  upto = item[1]
  if is_wanted(entry) then
    entries[#entries + 1] = entry
    found[#found + 1] = item[1]
    found[#found + 1] = item[2][2]
    if #entries == asked.need then
      more = more or number < #seen
      break
    end
  end
end
if asked.group_by then
  return { upto, more and 1 or 0, cmsgpack.pack(rows_of(entries)) }
end
return { upto, more and 1 or 0, unpack(found) }
