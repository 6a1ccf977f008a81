-- Grant a lease that is free to who asks, unless somebody else has been waiting for it.
-- KEYS: record, held names, queue, waiters' lives
-- ARGV: name, token, ttl, waiter ('' does not queue), its life, grace, channel prefix,
--       generation seen before (0: none), then pairs of fields and values
-- Answers: what, microseconds until the next look, position, length of the queue, record

local name, token, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local waiter, life, grace = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local channel, seen = ARGV[7], tonumber(ARGV[8])
local now = microseconds()
local record, fault = load(KEYS[1])
if fault then
  return {'malformed', 0, 0, 0, {fault}}
end

local function leave()
  if waiter ~= '' then
    redis.call('ZREM', KEYS[3], waiter)
    redis.call('ZREM', KEYS[4], waiter)
  end
end

-- The answer to the first attempt was lost.
if record and record.state == 'held' and record.token == token then
  write_first(KEYS[1])
  redis.call('HSET', KEYS[1], 'beat', digits(now), 'ttl', digits(ttl))
  leave()
  return {'granted', 0, 0, 0, redis.call('HGETALL', KEYS[1])}
end

-- Set back by the server's own clock, a beat would lie in the future until that has caught up.
if record and record.beat > now then
  redis.call('HSET', KEYS[1], 'beat', digits(now))
  record.beat = now
end
local remaining = left(record, now)

local dead = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', digits(now))
for i = 1, #dead do
  redis.call('ZREM', KEYS[3], dead[i])
  redis.call('ZREM', KEYS[4], dead[i])
end

local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
local forgotten = seen > 0 and (not record or record.generation < seen)
if remaining <= 0 and not forgotten and (not first or first == waiter) then
  -- Larger than any number given out before a loss of data, unless the clock went back, too.
  local generation = math.max(now, record and record.generation + 1 or 0)
  redis.call('HSET', KEYS[1], 'format', '1', 'generation', digits(generation), 'token', token,
    'state', 'held', 'ttl', digits(ttl), 'since', digits(now), 'beat', digits(now),
    unpack(ARGV, 9))
  redis.call('HDEL', KEYS[1], 'ended', 'by')
  redis.call('SADD', KEYS[2], name)
  leave()
  return {'granted', 0, 0, 0, redis.call('HGETALL', KEYS[1])}
end

local look = life / 3
if waiter ~= '' then
  if not redis.call('ZSCORE', KEYS[3], waiter) then
    local last = redis.call('ZREVRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', KEYS[3], digits(tonumber(last or '0') + 1), waiter)
  end
  redis.call('ZADD', KEYS[4], digits(now + life), waiter)
  -- A queue that nobody looks at any more is no use.
  for i = 3, 4 do
    redis.call('PEXPIRE', KEYS[i], digits(math.ceil(life / 500)))
  end
  first = first or waiter
end

local what = 'held'
if remaining > 0 then
  if first == waiter then
    look = math.min(look, remaining)
  end
elseif forgotten then
  what = 'forgotten'
elseif first then
  what = 'reserved'
  call_first(KEYS[3], KEYS[4], channel, now, grace)
  look = math.min(look, tonumber(redis.call('ZSCORE', KEYS[4], first) or '0') - now)
end
local position = waiter ~= '' and redis.call('ZRANK', KEYS[3], waiter) or -1
return {what, digits(math.max(look, 0)), position, redis.call('ZCARD', KEYS[3]),
  record and record.flat or {}}
