-- Tasks sent a while ago and not started. ARGV: seconds, limit. Returns [task, engine, estimated seconds]...
local stale = redis.call('ZRANGEBYSCORE', P .. 'admitted', '-inf', now() - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
local found = {}
for _, task in ipairs(stale) do
  local record = redis.call('HMGET', task_key(task), 'engine', 'seconds')
  if record[1] then table.insert(found, {task, record[1], record[2]}) else redis.call('ZREM', P .. 'admitted', task) end
end
return found
