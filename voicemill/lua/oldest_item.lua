-- Age in seconds of the oldest item that has not been started; nothing when none waits.
-- uses: keys
local first
local function look_at(job)
  local created = job and tonumber(redis.call('HGET', job_key(job), 'created_at'))
  if created then first = math.min(first or created, created) end
end
for _, engine in ipairs(all_lanes()) do
  look_at(redis.call('ZRANGE', P .. 'waiting:' .. engine, 0, 0)[1])
  for _, task in ipairs(redis.call('SMEMBERS', P .. 'tasks:' .. engine)) do
    local record = redis.call('HMGET', task_key(task), 'job', 'status')
    if record[2] == 'admitted' then look_at(record[1]) end
  end
end
return first and string.format('%.6f', math.max(0, now() - first))
