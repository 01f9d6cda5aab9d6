-- Stop jobs that are past their deadline. ARGV: limit
local due = redis.call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', now(), 'LIMIT', 0, ARGV[1])
for _, job in ipairs(due) do
  local status = redis.call('HGET', job_key(job), 'status')
  if status == 'queued' or status == 'in_progress' then stop_job(job, 'expired') end
  redis.call('ZREM', P .. 'deadlines', job)
end
return #due
