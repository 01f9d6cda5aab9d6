-- Children that still hold a task of a job which has been stopping for too long.
-- ARGV: seconds, child...
-- uses: keys
local found = {}
for position = 2, #ARGV do
  local task = redis.call('HGET', P .. 'child_tasks', ARGV[position])
  local job = task and redis.call('HGET', task_key(task), 'job')
  local record = job and redis.call('HMGET', job_key(job), 'status', 'cancelling_at')
  if record and record[1] == 'cancelling' and now() - record[2] > tonumber(ARGV[1]) then
    table.insert(found, ARGV[position])
  end
end
return found
