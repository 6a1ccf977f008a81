-- What every transition shares.  Times are in microseconds of the server's clock.

local function microseconds()
  local now = redis.call('TIME')
  return tonumber(now[1]) * 1000000 + tonumber(now[2])
end

local function digits(number)
  return string.format('%.0f', number)
end

-- The record of a lease, nil if there is none, or nil and what is wrong with it.
local function load(key)
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    return nil
  end
  if kind ~= 'hash' then
    return nil, 'it is a ' .. kind .. ', not a hash'
  end
  local flat = redis.call('HGETALL', key)
  local record = {}
  for i = 1, #flat, 2 do
    record[flat[i]] = flat[i + 1]
  end
  if record.format ~= '1' then
    return nil, 'its format is ' .. (record.format or 'missing') .. ', not 1'
  end
  for _, field in ipairs({'generation', 'ttl', 'beat', 'since'}) do
    record[field] = tonumber(record[field])
    if not record[field] then
      return nil, 'its field ' .. field .. ' is no number'
    end
  end
  record.flat = flat
  return record
end

-- How long the grant still has.  A clock that was set back must not make a ttl longer.
local function left(record, now)
  if not record or record.state ~= 'held' then
    return 0
  end
  return math.max(0, math.min(record.ttl, record.beat + record.ttl - now))
end

-- A server at its `maxmemory` refuses what may need memory, unless the script has written before.
-- To end or renew a grant needs none, and must not fail for that.
local function write_first(key)
  redis.call('HDEL', key, '')
end

-- Tell the first in the queue that it is its turn; it has `grace` to come.
local function call_first(queue, alive, channel, now, grace)
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  if not first then
    return
  end
  local known = tonumber(redis.call('ZSCORE', alive, first) or '0')
  if known > now + grace then
    redis.call('ZADD', alive, digits(now + grace), first)
  end
  -- Who may not publish is told so when it subscribes; those who wait look by themselves, later.
  redis.pcall('PUBLISH', channel .. first, '')
end
