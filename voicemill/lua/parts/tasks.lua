-- Tasks that end, and those of a job that is stopped.
-- uses: finalizing, lease, queues

-- A tenant was charged what a task was estimated to take. What it took is the time it held its slot,
-- or what its items say, should that be more (the clock was set back); nothing when it never started.
local function seconds_taken(account)
  if account.status == 'admitted' then return 0 end
  local held = account.started_at and now() - account.started_at or account.seconds
  return math.max(held, tonumber(account.spent) or 0)
end

local ACCOUNT = {'tenant', 'weight', 'items', 'seconds', 'line', 'key', 'status', 'started_at', 'spent', 'class', 'child'}

local function forget_task(task, job, engine)
  note_gap(task)
  local account = {}
  for place, value in ipairs(redis.call('HMGET', task_key(task), unpack(ACCOUNT))) do
    account[ACCOUNT[place]] = value
  end
  if account.tenant then
    local more = seconds_taken(account) - account.seconds
    correct(engine, class_lists(engine), account.tenant, more / account.weight)
    if account.line then correct(account.line, {account.line}, account.key, more) end
    redis.call('HINCRBY', use_key(account.tenant), 'running_items', -account.items)
    unpark(account.tenant)
  end
  if account.child and redis.call('HGET', P .. 'child_tasks', account.child) == task then
    redis.call('HDEL', P .. 'child_tasks', account.child)
  end
  redis.call('DEL', task_key(task))
  redis.call('ZREM', P .. 'admitted', task)
  redis.call('ZREM', P .. 'running', task)
  redis.call('SREM', P .. 'tasks:' .. engine, task)
  if account.class == 'interactive' then redis.call('SREM', P .. 'tasks:' .. engine .. ':interactive', task) end
  redis.call('SREM', job_tasks_key(job), task)
end

-- End what the tasks of a stopping job have not begun, of so many items at once; the clerk goes on
-- with the others at its next round.
local function stop_tasks(job)
  local status, touched = stopped_as(job), 0
  for _, task in ipairs(redis.call('SMEMBERS', job_tasks_key(job))) do
    local record = redis.call('HMGET', task_key(task), 'status', 'engine', 'entries', 'stopped')
    local entries = record[4] and {} or cjson.decode(record[3])
    touched = touched + #entries
    if touched > MOST_TOUCHED then
      redis.call('ZADD', P .. 'deadlines', stamp(), job)
      break
    end
    redis.call('HSET', task_key(task), 'stopped', 1)
    for _, entry in ipairs(entries) do
      local index = parse(entry).index
      local state = load_state(job, index)
      if state.status == 'queued' and not has_begun(task, index) then
        end_state(job, index, state, status, record[2], '')
      end
    end
    if record[1] == 'admitted' then forget_task(task, job, record[2]) end
  end
  settle(job)
end

-- Stop a job: what waits ends at once, what runs at its next check; then the job ends as `ending`.
local function stop_job(job, ending)
  local fields = redis.call('HMGET', job_key(job), 'engines', 'run')
  local status = ending == 'expired' and 'expired' or 'cancelled'
  move_job(job, 'cancelling')
  redis.call('HSET', job_key(job), 'ending', ending, 'stop:' .. fields[2], status)
  for _, engine in ipairs(cjson.decode(fields[1])) do
    local waiting = drop_waiting(job, engine)
    if waiting > 0 then
      redis.call('HINCRBY', job_key(job), 'queued', -waiting)
      redis.call('HINCRBY', job_key(job), status, waiting)
      count_waiting(job, engine, -waiting, -redis.call('HGET', job_key(job), 'waiting_characters:' .. engine))
      measure('voicemill_items_total', 'engine=' .. engine_of(engine) .. ',outcome=' .. status .. ',code=', waiting)
    end
  end
  stop_tasks(job)
end
