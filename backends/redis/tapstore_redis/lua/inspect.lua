-- Look at leases; nothing is changed.
-- KEYS: records
-- Answers: for each: what, record

local answer = {}
for i = 1, #KEYS do
  local record, fault = load(KEYS[i])
  if fault then
    answer[i] = {'malformed', {fault}}
  elseif record and record.state == 'held' then
    answer[i] = {'held', record.flat}
  else
    answer[i] = {'free', {}}
  end
end
return answer
