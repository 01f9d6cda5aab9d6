-- Cancel what waits at once; what runs ends at its next check. ARGV: job
local job = ARGV[1]
local record = redis.call('HMGET', job_key(job), 'status', 'engines', 'schema')
local status = record[1]
if not status or record[3] ~= '1' then return redis.error_reply('NOJOB') end
if status == 'validating' then
  redis.call('ZREM', P .. 'validating', job)
  redis.call('HSET', job_key(job), 'cancelled', redis.call('HGET', job_key(job), 'queued'), 'queued', 0)
  for _, engine in ipairs(cjson.decode(record[2])) do redis.call('DEL', queue_key(job, engine)) end
  unreserve(job)
  move_job(job, 'cancelled')
  return 1
end
if status ~= 'queued' and status ~= 'in_progress' then return 0 end
move_job(job, 'cancelling')
for _, engine in ipairs(cjson.decode(record[2])) do
  local waiting = redis.call('LLEN', queue_key(job, engine))
  if waiting > 0 then
    redis.call('HINCRBY', job_key(job), 'queued', -waiting)
    redis.call('HINCRBY', job_key(job), 'cancelled', waiting)
    count_waiting(job, engine, -waiting, -redis.call('HGET', job_key(job), 'waiting_characters:' .. engine))
    measure('voicemill_items_total', 'engine=' .. engine .. ',outcome=cancelled,code=', waiting)
  end
  redis.call('DEL', queue_key(job, engine))
  leave_turn(job, engine)
end
for _, task in ipairs(redis.call('SMEMBERS', job_tasks_key(job))) do
  local fields = redis.call('HMGET', task_key(task), 'status', 'engine', 'entries')
  for _, entry in ipairs(cjson.decode(fields[3])) do
    local index = parse(entry).index
    local state = load_state(job, index)
    if state.status == 'queued' and not has_begun(task, index) then
      end_state(job, index, state, 'cancelled', fields[2], '')
    end
  end
  if fields[1] == 'admitted' then forget_task(task, job, fields[2]) end
end
settle(job)
return 1
