-- Run the failed items of a job once more, in any number: their lists become its queues. Nothing is done
-- where that has begun: a later run than the one whose failures are meant. ARGV: job, that run or ""
-- Returns how many
-- uses: jobs, lines, waiting
local job = ARGV[1]
local record = redis.call('HMGET', job_key(job),
  'status', 'engines', 'failed', 'tenant', 'data_removed', 'run', 'deleted')
if not record[1] or record[7] then return redis.error_reply('NOJOB') end
if ARGV[2] ~= '' and tonumber(record[6]) > tonumber(ARGV[2]) then return 0 end
if not is_terminal(record[1]) then return redis.error_reply('JOBACTIVE') end
if record[5] then return redis.error_reply('DATAREMOVED') end
if tonumber(record[3]) == 0 then return 0 end
local all = 0
for _, engine in ipairs(cjson.decode(record[2])) do
  all = all + (redis.call('HGET', job_key(job), 'failed_characters:' .. engine) or 0)
end
local refusal = check_caps(record[4], record[3], all)
if refusal then return refusal end
for _, status in ipairs({'finalizing', 'completed', 'failed', 'cancelling', 'cancelled', 'expired'}) do
  redis.call('HDEL', job_key(job), status .. '_at')
end
redis.call('HDEL', job_key(job), 'output_expires_at')
redis.call('ZREM', P .. 'expiries', job)
redis.call('HINCRBY', job_key(job), 'run', 1)
redis.call('UNLINK', spoken_key(job))
redis.call('HSET', job_key(job), 'failed', 0)
redis.call('HINCRBY', job_key(job), 'queued', record[3])
for _, engine in ipairs(cjson.decode(record[2])) do
  local items = redis.call('LLEN', failed_key(job, engine))
  if items > 0 then
    local characters = redis.call('HGET', job_key(job), 'failed_characters:' .. engine)
    redis.call('HDEL', job_key(job), 'failed_characters:' .. engine)
    redis.call('HINCRBY', job_key(job), 'done_characters', -characters)
    redis.call('RENAME', failed_key(job, engine), queue_key(job, engine))
    count_waiting(job, engine, items, characters)
    await_turn(job, engine)
  end
end
redis.call('ZREM', P .. 'dead:' .. record[4], job)
move_job(job, 'queued')
set_deadline(job)
return tonumber(record[3])
