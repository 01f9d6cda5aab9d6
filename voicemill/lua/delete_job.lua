-- Hide a job for good; the clerk removes what there is of it. ARGV: job, 1 to stop what has not ended
-- uses: tasks
local job = ARGV[1]
local record = redis.call('HMGET', job_key(job), 'status', 'tenant', 'deleted')
if not record[1] or record[3] then return redis.error_reply('NOJOB') end
if ARGV[2] ~= '1' and not is_terminal(record[1]) then return redis.error_reply('JOBACTIVE') end
-- Its items have ended: nobody needs to join their audio any more.
if record[1] == 'finalizing' then end_finalizing(job) end
-- Somebody had it run again since it was cancelled.
if record[1] == 'queued' or record[1] == 'in_progress' then stop_job(job, 'cancelled') end
redis.call('HSET', job_key(job), 'deleted', 1)
redis.call('ZREM', P .. 'jobs:' .. record[2], job)
redis.call('ZREM', listed_key(record[2], redis.call('HGET', job_key(job), 'status')), job)
redis.call('ZREM', P .. 'dead:' .. record[2], job)
redis.call('ZADD', P .. 'removals', stamp(), job)
return 1
