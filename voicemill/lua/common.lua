-- Shared by every script: key names, the clock, counters and the transitions.
-- An item without a record in `states` is queued and was never tried.
-- A queue entry is "index \t characters \t batch_key \t alone".

local P = 'voicemill:'
local LONGEST_PAUSE_SECONDS = 60

local function job_key(job) return P .. 'job:' .. job end
local function states_key(job) return P .. 'job:' .. job .. ':states' end
local function queue_key(job, engine) return P .. 'job:' .. job .. ':queue:' .. engine end
local function delayed_key(job, engine) return P .. 'job:' .. job .. ':delayed:' .. engine end
local function failed_key(job, engine) return P .. 'job:' .. job .. ':failed:' .. engine end
local function job_tasks_key(job) return P .. 'job:' .. job .. ':tasks' end
local function task_key(task) return P .. 'task:' .. task end

local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function stamp() return string.format('%.6f', now()) end

local function measure(name, labels, by)
  redis.call('HINCRBYFLOAT', P .. 'metrics', name .. '|' .. labels, by)
end

-- Fold one measurement into the decaying sums that costs.py fits.
local function observe_cost(engine, x, y, decay)
  local key = P .. 'costs:' .. engine
  local sums = redis.call('HMGET', key, 'n', 'x', 'y', 'xx', 'xy')
  local adds = {1, x, y, x * x, x * y}
  for i, name in ipairs({'n', 'x', 'y', 'xx', 'xy'}) do
    redis.call('HSET', key, name, string.format('%.9g', (tonumber(sums[i]) or 0) * decay + adds[i]))
  end
end

-- Keep account of what waits, in items and in characters.
local function count_waiting(job, engine, items, characters)
  redis.call('HINCRBY', P .. 'queued_items', engine, items)
  redis.call('HINCRBY', P .. 'queued_characters', engine, characters)
  redis.call('HINCRBY', job_key(job), 'waiting_characters:' .. engine, characters)
end

local function parse(entry)
  local index, characters, key, alone = string.match(entry, '^(%d+)\t(%d+)\t([^\t]*)\t(%d)$')
  return {index = tonumber(index), characters = tonumber(characters), key = key, alone = alone == '1'}
end

local function load_state(job, index)
  local record = redis.call('HGET', states_key(job), index)
  if not record then return {status = 'queued', attempts = 0, run = 1} end
  local state = cjson.decode(record)
  -- What failed in an earlier run of its job waits again, and its attempts count anew.
  if state.status == 'failed' and state.run < tonumber(redis.call('HGET', job_key(job), 'run')) then
    state.status, state.run, state.base = 'queued', state.run + 1, state.attempts
  end
  return state
end

-- Attempts of an item in this run of its job.
local function tries(state) return state.attempts - (state.base or 0) end

local function save_state(job, index, state)
  redis.call('HSET', states_key(job), index, cjson.encode(state))
end

local function is_terminal(status)
  return status == 'completed' or status == 'failed' or status == 'cancelled' or status == 'expired'
end

local function move_item(job, index, state, status)
  redis.call('HINCRBY', job_key(job), state.status, -1)
  redis.call('HINCRBY', job_key(job), status, 1)
  state.status = status
  save_state(job, index, state)
end

local function move_job(job, status)
  redis.call('HSET', job_key(job), 'status', status, status .. '_at', stamp())
end

-- A job has ended; its audio and texts are kept for a while.
local function end_job(job, status)
  move_job(job, status)
  local seconds = tonumber(redis.call('HGET', job_key(job), 'output_expires_after'))
  if not seconds then return end
  local at = string.format('%.6f', now() + seconds)
  redis.call('HSET', job_key(job), 'output_expires_at', at)
  redis.call('ZADD', P .. 'expiries', at, job)
end

local function set_deadline(job)
  local seconds = tonumber(redis.call('HGET', job_key(job), 'deadline_seconds'))
  if not seconds then return end
  local at = string.format('%.6f', now() + seconds)
  redis.call('HSET', job_key(job), 'expires_at', at)
  redis.call('ZADD', P .. 'deadlines', at, job)
end

local function settle(job)
  local fields = redis.call('HMGET', job_key(job), 'status', 'queued', 'in_progress', 'succeeded', 'ending')
  if tonumber(fields[2]) > 0 or tonumber(fields[3]) > 0 then return end
  if fields[1] == 'cancelling' then
    end_job(job, fields[5])
  elseif fields[1] == 'in_progress' then
    move_job(job, 'finalizing')
    end_job(job, tonumber(fields[4]) > 0 and 'completed' or 'failed')
  end
end

local function await_turn(job, engine)
  local fields = redis.call('HMGET', job_key(job), 'tenant', 'seq')
  redis.call('ZADD', P .. 'waiting:' .. engine .. ':' .. fields[1], fields[2], job)
  local turn = redis.call('GET', P .. 'turn') or '0'
  redis.call('ZADD', P .. 'ready:' .. engine, 'NX', turn, fields[1])
end

local function leave_turn(job, engine)
  local tenant = redis.call('HGET', job_key(job), 'tenant')
  local waiting = P .. 'waiting:' .. engine .. ':' .. tenant
  redis.call('ZREM', waiting, job)
  if redis.call('ZCARD', waiting) == 0 then redis.call('ZREM', P .. 'ready:' .. engine, tenant) end
end

-- Put an item at the head of its queue; with a pause, once that is over.
local function requeue(job, engine, entry, alone, pause)
  local parts = parse(entry)
  local again = table.concat({parts.index, parts.characters, parts.key, alone and 1 or 0}, '\t')
  count_waiting(job, engine, 1, parts.characters)
  if pause > 0 then
    redis.call('ZADD', delayed_key(job, engine), now() + pause, again)
    redis.call('ZADD', P .. 'delayed:' .. engine, 'LT', now() + pause, job)
  else
    redis.call('LPUSH', queue_key(job, engine), again)
    await_turn(job, engine)
  end
end

-- Items whose pause is over go to the head of their queues.
local function end_pauses(engine)
  local at = now()
  local due = redis.call('ZRANGEBYSCORE', P .. 'delayed:' .. engine, '-inf', at, 'LIMIT', 0, 16)
  for _, job in ipairs(due) do
    local delayed = delayed_key(job, engine)
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', at, 'LIMIT', 0, 64)) do
      redis.call('ZREM', delayed, entry)
      redis.call('LPUSH', queue_key(job, engine), entry)
    end
    await_turn(job, engine)
    local left = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
    if left[1] then
      redis.call('ZADD', P .. 'delayed:' .. engine, left[2], job)
    else
      redis.call('ZREM', P .. 'delayed:' .. engine, job)
    end
  end
end

-- Drop all of a job that waits for an engine; gives how many items.
local function drop_waiting(job, engine)
  local items = redis.call('LLEN', queue_key(job, engine)) + redis.call('ZCARD', delayed_key(job, engine))
  redis.call('DEL', queue_key(job, engine), delayed_key(job, engine))
  redis.call('ZREM', P .. 'delayed:' .. engine, job)
  leave_turn(job, engine)
  return items
end

-- What items of a job end as that is stopping; false for one that is not.
local function stopped_as(job)
  local fields = redis.call('HMGET', job_key(job), 'status', 'run')
  local status = fields[1]
  if status ~= 'cancelling' and status ~= 'cancelled' and status ~= 'expired' then return false end
  return redis.call('HGET', job_key(job), 'stop:' .. fields[2])
end

local function forget_task(task, job, engine)
  local child = redis.call('HGET', task_key(task), 'child')
  if child and redis.call('HGET', P .. 'child_tasks', child) == task then
    redis.call('HDEL', P .. 'child_tasks', child)
  end
  redis.call('DEL', task_key(task))
  redis.call('ZREM', P .. 'admitted', task)
  redis.call('ZREM', P .. 'running', task)
  redis.call('SREM', P .. 'tasks:' .. engine, task)
  redis.call('SREM', job_tasks_key(job), task)
end

-- True once a task has begun an item. If that item is queued now it went back by itself,
-- maybe to run and fail in another task meanwhile; this task has no hold on it any more.
local function has_begun(task, index)
  return redis.call('HEXISTS', task_key(task), 'begun:' .. index) == 1
end

local function end_state(job, index, state, status, engine, code)
  state.completed_at = now()
  move_item(job, index, state, status)
  measure('voicemill_items_total', 'engine=' .. engine .. ',outcome=' .. status .. ',code=' .. code, 1)
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
      measure('voicemill_items_total', 'engine=' .. engine .. ',outcome=' .. status .. ',code=', waiting)
    end
  end
  for _, task in ipairs(redis.call('SMEMBERS', job_tasks_key(job))) do
    local record = redis.call('HMGET', task_key(task), 'status', 'engine', 'entries')
    for _, entry in ipairs(cjson.decode(record[3])) do
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

-- Fail an attempt: the item goes back to the head of its queue, alone and after a pause, until its
-- attempts are used up.
local function fail_attempt(job, engine, entry, state, failure, max_attempts, retry_seconds)
  local index = parse(entry).index
  state.error = failure
  if failure.retryable and tries(state) < max_attempts and not stopped_as(job) then
    move_item(job, index, state, 'queued')
    requeue(job, engine, entry, true, pause_after(job, index, state, retry_seconds))
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
  local entries = cjson.decode(record[3])
  for position = #entries, 1, -1 do
    local entry = entries[position]
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

-- Have the append-only file written anew some time from now, if that is not planned already.
local function rewrite_in(seconds)
  redis.call('SET', P .. 'rewrite_at', now() + tonumber(seconds), 'NX')
end

-- Records of the workers or children that were heard of lately.
local function live_records(set, prefix, at)
  local found = {}
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', P .. set, at, '+inf')) do
    local record = redis.call('GET', P .. prefix .. id)
    if record then table.insert(found, record) end
  end
  return found
end
