-- Count the ttl of a grant anew.
-- KEYS: record       ARGV: token, generation, ttl
-- Answers: what, record

local record, fault = load(KEYS[1])
if fault then
  return {'malformed', {fault}}
end
if not record then
  return {'forgotten', {}}
end
if record.state ~= 'held' or record.token ~= ARGV[1] or digits(record.generation) ~= ARGV[2] then
  return {'lost', record.flat}
end
write_first(KEYS[1])
redis.call('HSET', KEYS[1], 'beat', digits(microseconds()), 'ttl', ARGV[3])
return {'renewed', {}}
