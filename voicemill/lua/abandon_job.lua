-- Fail jobs whose submission stopped half-way. ARGV: seconds without a new page, limit
-- uses: jobs, waiting
local stale = redis.call('ZRANGEBYSCORE', P .. 'validating', '-inf', now() - tonumber(ARGV[1]), 'LIMIT', 0, ARGV[2])
for _, job in ipairs(stale) do
  local record = redis.call('HMGET', job_key(job), 'status', 'queued', 'engines')
  if record[1] == 'validating' then
    for _, engine in ipairs(cjson.decode(record[3])) do redis.call('DEL', queue_key(job, engine)) end
    redis.call('HSET', job_key(job), 'queued', 0, 'cancelled', record[2], 'stop:1', 'cancelled')
    unreserve(job)
    end_job(job, 'failed')
  end
  redis.call('ZREM', P .. 'validating', job)
end
return #stale
