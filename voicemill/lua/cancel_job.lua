-- Cancel what waits at once; what runs ends at its next check. ARGV: job
-- uses: tasks
local job = ARGV[1]
local record = redis.call('HMGET', job_key(job), 'status', 'engines', 'schema')
local status = record[1]
if not status or record[3] ~= '1' then return redis.error_reply('NOJOB') end
if status == 'validating' then
  redis.call('ZREM', P .. 'validating', job)
  local queued = redis.call('HGET', job_key(job), 'queued')
  redis.call('HSET', job_key(job), 'cancelled', queued, 'queued', 0, 'stop:1', 'cancelled')
  for _, engine in ipairs(cjson.decode(record[2])) do redis.call('DEL', queue_key(job, engine)) end
  unreserve(job)
  end_job(job, 'cancelled')
  return 1
end
if status ~= 'queued' and status ~= 'in_progress' then return 0 end
stop_job(job, 'cancelled')
return 1
