-- The start-of-item compare-and-set; it counts the attempt.
-- ARGV: task, token, lease seconds, index... Returns nil when the lease is lost, else [index, attempt]...
-- uses: items, jobs, lease
local task = ARGV[1]
local record = redis.call('HMGET', task_key(task), 'token', 'job', 'engine')
if record[1] ~= ARGV[2] then return nil end
local job = record[2]
keep_lease(task, ARGV[3])
local started, first_attempts = {}, 0
if stopped_as(job) then return started end
local waits = redis.call('HMGET', job_key(job), 'status', 'created_at', 'run')
if waits[1] == 'queued' then move_job(job, 'in_progress') end
for position = 4, #ARGV do
  local index = ARGV[position]
  local state = load_state(job, index)
  if state.status == 'queued' and not has_begun(task, index) then
    redis.call('HSET', task_key(task), 'begun:' .. index, 1)
    state.attempts = state.attempts + 1
    state.task_id = task
    state.run = tonumber(waits[3])
    if not state.started_at then first_attempts = first_attempts + 1 end
    state.started_at = now()
    state.completed_at, state.again_at = nil, nil
    move_item(job, index, state, 'in_progress')
    table.insert(started, {tonumber(index), state.attempts})
  elseif state.status == 'in_progress' and state.task_id == task then
    -- The same call again, because its answer was lost.
    table.insert(started, {tonumber(index), state.attempts})
  end
end
if first_attempts > 0 then
  local labels = 'engine=' .. engine_of(record[3])
  measure('voicemill_wait_seconds_sum', labels, first_attempts * (now() - waits[2]))
  measure('voicemill_wait_seconds_count', labels, first_attempts)
end
return started
