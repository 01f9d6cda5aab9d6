-- Forget a job whose files are gone, but for its name: who was frozen may still write a file.
-- ARGV: job, seconds until the AOF is rewritten
-- uses: memory, tasks
local REMEMBERED = 100000
local job = ARGV[1]
local record = redis.call('HMGET', job_key(job), 'engines', 'deleted')
if record[2] ~= '1' then return redis.call('ZREM', P .. 'removals', job) end
for _, task in ipairs(redis.call('SMEMBERS', job_tasks_key(job))) do
  local engine = redis.call('HGET', task_key(task), 'engine')
  if engine then forget_task(task, job, engine) end
end
for _, engine in ipairs(cjson.decode(record[1])) do
  redis.call('UNLINK', queue_key(job, engine), again_key(job, engine), delayed_key(job, engine),
    failed_key(job, engine))
end
local all = job_key(job)
redis.call('UNLINK', all, states_key(job), spoken_key(job), job_tasks_key(job), all .. ':pages', all .. ':ids')
redis.call('ZREM', P .. 'deadlines', job)
redis.call('ZREM', P .. 'expiries', job)
redis.call('ZREM', P .. 'removals', job)
redis.call('ZADD', P .. 'removed', stamp(), job)
redis.call('ZREMRANGEBYRANK', P .. 'removed', 0, -REMEMBERED - 1)
rewrite_in(ARGV[2])
return 1
