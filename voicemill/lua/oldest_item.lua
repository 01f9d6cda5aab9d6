-- Age in seconds of the oldest item that has not been started; nothing when none waits.
local first
local function look_at(job)
  local created = tonumber(redis.call('HGET', job_key(job), 'created_at'))
  first = math.min(first or created, created)
end
for _, engine in ipairs(redis.call('HKEYS', P .. 'engines')) do
  for _, tenant in ipairs(redis.call('ZRANGE', P .. 'ready:' .. engine, 0, -1)) do
    look_at(redis.call('ZRANGE', P .. 'waiting:' .. engine .. ':' .. tenant, 0, 0)[1])
  end
  for _, task in ipairs(redis.call('SMEMBERS', P .. 'tasks:' .. engine)) do
    local record = redis.call('HMGET', task_key(task), 'job', 'status')
    if record[2] == 'admitted' then look_at(record[1]) end
  end
end
return first and string.format('%.6f', math.max(0, now() - first))
