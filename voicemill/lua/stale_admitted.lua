-- Tasks sent a while ago and not started. ARGV: seconds, limit. Returns [task, model]...
local stale = redis.call('ZRANGEBYSCORE', P .. 'admitted', '-inf', now() - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
local found = {}
for _, task in ipairs(stale) do
  local model = redis.call('HGET', task_key(task), 'model')
  if model then table.insert(found, {task, model}) else redis.call('ZREM', P .. 'admitted', task) end
end
return found
