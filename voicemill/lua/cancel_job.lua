-- Cancel what waits at once; what runs ends at its next check. A job whose items have ended is completed
-- without its one file; who joins it can't publish any more. ARGV: job, why that is so (JSON)
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
if status == 'finalizing' then
  local failure = cjson.decode(ARGV[2])
  local trouble = redis.call('HGET', job_key(job), 'trouble')
  if trouble then failure.code, failure.retryable = trouble, true end
  redis.call('HSET', job_key(job), 'concatenation', cjson.encode({error = failure}))
  end_finalizing(job)
  return 1
end
if status ~= 'queued' and status ~= 'in_progress' then return 0 end
stop_job(job, 'cancelled')
return 1
