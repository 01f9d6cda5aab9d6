-- Stop jobs that are past their deadline, and go on with those that are being stopped. ARGV: limit
-- uses: tasks
local due = redis.call('ZRANGEBYSCORE', P .. 'deadlines', '-inf', now(), 'LIMIT', 0, ARGV[1])
for _, job in ipairs(due) do
  local status = redis.call('HGET', job_key(job), 'status')
  redis.call('ZREM', P .. 'deadlines', job)
  if status == 'queued' or status == 'in_progress' then
    stop_job(job, 'expired')
  elseif status == 'cancelling' then
    stop_tasks(job)
  end
end
return #due
