-- Hide a job for good; the clerk removes what there is of it. ARGV: job, 1 if it may still be ending
-- uses: finalizing
local job = ARGV[1]
-- Its items have ended: nobody needs to join their audio any more.
if ARGV[2] == '1' and redis.call('HGET', job_key(job), 'status') == 'finalizing' then end_finalizing(job) end
local record = redis.call('HMGET', job_key(job), 'status', 'tenant')
if ARGV[2] ~= '1' and not is_terminal(record[1]) then return redis.error_reply('JOBACTIVE') end
redis.call('HSET', job_key(job), 'deleted', 1)
redis.call('ZREM', P .. 'jobs:' .. record[2], job)
redis.call('ZREM', listed_key(record[2], record[1]), job)
redis.call('ZREM', P .. 'dead:' .. record[2], job)
redis.call('ZADD', P .. 'removals', stamp(), job)
return 1
