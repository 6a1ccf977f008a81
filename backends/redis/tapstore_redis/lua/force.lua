-- End exactly one grant, whoever holds it.
-- KEYS: record, held names, queue, waiters' lives
-- ARGV: name, generation, id of this attempt, grace, channel prefix
-- Answers: what, record

local record, fault = load(KEYS[1])
if fault then
  return {'malformed', {fault}}
end
if record and record.state == 'forced' and record.by == ARGV[3] then
  return {'forced', {}}
end
if not record or record.state ~= 'held' then
  return {'free', {}}
end
if digits(record.generation) ~= ARGV[2] then
  return {'other', record.flat}
end
local now = microseconds()
write_first(KEYS[1])
redis.call('HSET', KEYS[1], 'state', 'forced', 'by', ARGV[3], 'ended', digits(now))
redis.call('SREM', KEYS[2], ARGV[1])
call_first(KEYS[3], KEYS[4], ARGV[5], now, tonumber(ARGV[4]))
return {'forced', {}}
