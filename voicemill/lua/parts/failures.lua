-- Attempts that failed, and tasks that are taken apart.
-- uses: figures, tasks

local LONGEST_PAUSE_SECONDS = 60

-- Seconds until an item may be tried again: four times as long after each attempt, less up to a half
-- that differs from item to item. The first loss of a worker is no fault of the item.
local function pause_after(job, index, state, retry_seconds)
  if state.error.code == 'worker_lost' and tries(state) == 1 then return 0 end
  local longest = math.min(LONGEST_PAUSE_SECONDS, retry_seconds * 4 ^ (tries(state) - 1))
  local drawn = tonumber(string.sub(redis.sha1hex(job .. index .. state.attempts), 1, 8), 16) / 2 ^ 32
  return longest * (1 - drawn / 2)
end

-- Keep a failed item at hand, for those who look and for another run.
local function keep_failed(job, engine, entry)
  local parts = parse(entry)
  local fields = redis.call('HMGET', job_key(job), 'tenant', 'seq')
  redis.call('RPUSH', failed_key(job, engine), table.concat({parts.index, parts.characters, parts.key, 0}, '\t'))
  redis.call('HINCRBY', job_key(job), 'failed_characters:' .. engine, parts.characters)
  redis.call('HINCRBY', job_key(job), 'done_characters', parts.characters)
  redis.call('ZADD', P .. 'dead:' .. fields[1], fields[2], job)
end

-- Fail an attempt: the item comes again, alone and after a pause, until its attempts are used up.
local function fail_attempt(job, engine, entry, state, failure, max_attempts, retry_seconds)
  local index = parse(entry).index
  state.error = failure
  local revision = state.task_id and redis.call('HGET', task_key(state.task_id), 'revision')
  if revision then count_attempt(engine, revision, failure.code, 0, 0) end
  if failure.retryable and tries(state) < max_attempts and not stopped_as(job) then
    local pause = pause_after(job, index, state, retry_seconds)
    state.again_at = now() + pause
    move_item(job, index, state, 'queued')
    requeue(job, engine, entry, true, pause)
  else
    end_state(job, index, state, 'failed', engine, failure.code)
    keep_failed(job, engine, entry)
    local fields = redis.call('HMGET', job_key(job), 'failed', 'max_failures')
    local most = tonumber(fields[2])
    if most and tonumber(fields[1]) > most and not stopped_as(job) then stop_job(job, 'failed') end
  end
end

-- Take a task apart: started items lose their attempt, the others go back as they were.
local function release(task, max_attempts, retry_seconds, code, message)
  local record = redis.call('HMGET', task_key(task), 'job', 'engine', 'entries')
  local job, engine = record[1], record[2]
  if not job then return 0 end
  for _, entry in ipairs(cjson.decode(record[3])) do
    local parts = parse(entry)
    local state = load_state(job, parts.index)
    if state.status == 'in_progress' and state.task_id == task then
      local ending = stopped_as(job)
      if ending then
        end_state(job, parts.index, state, ending, engine, '')
      else
        local failure = {code = code, message = message, retryable = true}
        fail_attempt(job, engine, entry, state, failure, max_attempts, retry_seconds)
      end
    elseif state.status == 'queued' and not has_begun(task, parts.index) then
      local ending = stopped_as(job)
      if ending then
        end_state(job, parts.index, state, ending, engine, '')
      else
        requeue(job, engine, entry, parts.alone, 0)
      end
    end
  end
  forget_task(task, job, engine)
  settle(job)
  return 1
end

-- Close a task; what it did not start goes back as it was. Whoever does not hold it closes nothing.
local function end_task(task, token, max_attempts, retry_seconds)
  if redis.call('HGET', task_key(task), 'token') ~= token then return 0 end
  local message = 'The worker closed the task with this item in hand.'
  return release(task, tonumber(max_attempts), tonumber(retry_seconds), 'worker_lost', message)
end
