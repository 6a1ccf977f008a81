-- End a grant, and stop waiting for one.  Harmless if neither is the case, so it may be repeated.
-- KEYS: record, held names, queue, waiters' lives
-- ARGV: name, token, waiter ('' if none), grace, channel prefix
-- Answers: 1 if this ended a grant

local name, token, waiter = ARGV[1], ARGV[2], ARGV[3]
local now = microseconds()
local record = load(KEYS[1])
local ended = 0
if waiter ~= '' then
  redis.call('ZREM', KEYS[3], waiter)
  redis.call('ZREM', KEYS[4], waiter)
end
if record and record.state == 'held' and record.token == token then
  write_first(KEYS[1])
  redis.call('HSET', KEYS[1], 'state', 'released', 'ended', digits(now))
  redis.call('SREM', KEYS[2], name)
  record.state = 'released'
  ended = 1
end
-- Also after the first in the queue gave up: it may have been called already.
if left(record, now) <= 0 and (ended == 1 or waiter ~= '') then
  call_first(KEYS[3], KEYS[4], ARGV[5], now, tonumber(ARGV[4]))
end
return ended
