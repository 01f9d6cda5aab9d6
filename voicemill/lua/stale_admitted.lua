-- Tasks sent a while ago and not started. ARGV: seconds, limit. Returns [task, engine, estimated seconds, class]...
-- uses: keys
local stale = redis.call('ZRANGEBYSCORE', P .. 'admitted', '-inf', now() - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
local found = {}
for _, task in ipairs(stale) do
  local record = redis.call('HMGET', task_key(task), 'engine', 'seconds', 'class')
  if record[1] then table.insert(found, {task, unpack(record)}) else redis.call('ZREM', P .. 'admitted', task) end
end
return found
