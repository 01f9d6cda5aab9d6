-- Workers and children heard of lately. Returns [[worker record]..., [child record]..., [draining id]...]
local at = now()

local function records(set, prefix)
  local found = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. set, at, '+inf')) do
    local record = redis.call('GET', P .. prefix .. id)
    if record then table.insert(found, record) end
  end
  return found
end

return {records('workers', 'worker:'), records('children', 'child:'), redis.call('SMEMBERS', P .. 'draining')}
