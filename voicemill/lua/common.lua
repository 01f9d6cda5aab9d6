-- Shared by every script: key names, the clock, counters and the transitions. Follows fair.lua.
-- An item without a record in `states` is queued and was never tried.
-- A queue entry is "index \t characters \t batch_key \t alone".

local LONGEST_PAUSE_SECONDS = 60
local MOST_TOUCHED = 1000

local function job_key(job) return P .. 'job:' .. job end
local function states_key(job) return P .. 'job:' .. job .. ':states' end
local function queue_key(job, engine) return P .. 'job:' .. job .. ':queue:' .. engine end
local function delayed_key(job, engine) return P .. 'job:' .. job .. ':delayed:' .. engine end
local function failed_key(job, engine) return P .. 'job:' .. job .. ':failed:' .. engine end
local function spoken_key(job) return P .. 'job:' .. job .. ':spoken' end
local function job_tasks_key(job) return P .. 'job:' .. job .. ':tasks' end
local function task_key(task) return P .. 'task:' .. task end
local function tenant_key(tenant) return P .. 'tenant:' .. tenant end
local function use_key(tenant) return P .. 'use:' .. tenant end
local function voices_key(tenant) return P .. 'voices:' .. tenant end
local function voice_key(tenant, name) return P .. 'voice:' .. tenant .. ':' .. name end
local function voice_jobs_key(tenant, name) return P .. 'voice_jobs:' .. tenant .. ':' .. name end
local function upload_key(token) return P .. 'upload:' .. token end

local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local function stamp() return string.format('%.6f', now()) end

local function measure(name, labels, by)
  redis.call('HINCRBYFLOAT', P .. 'metrics', name .. '|' .. labels, by)
end

local MOST_MEMORY = 0.9

-- What is left is for the jobs there are. A Redis that takes no writes at all says so itself.
local function is_short_of_memory()
  local memory = redis.call('INFO', 'memory')
  local used = tonumber(string.match(memory, 'used_memory:(%d+)'))
  local most = tonumber(string.match(memory, 'maxmemory:(%d+)'))
  return most > used and used > MOST_MEMORY * most
end

-- Fold one measurement of an engine, or of one of its voices, into the decaying sums that costs.py fits.
local function observe_cost(name, x, y, decay)
  local key = P .. 'costs:' .. name
  local sums = redis.call('HMGET', key, 'n', 'x', 'y', 'xx', 'xy')
  local adds = {1, x, y, x * x, x * y}
  local fields = {}
  for i, sum in ipairs({'n', 'x', 'y', 'xx', 'xy'}) do
    table.insert(fields, sum)
    table.insert(fields, string.format('%.9g', (tonumber(sums[i]) or 0) * decay + adds[i]))
  end
  redis.call('HSET', key, unpack(fields))
end

local MEASURED_ENOUGH = 5

-- The line costs.py would fit: base and slope; nothing while too little was measured.
local function fit_cost(name)
  local sums = redis.call('HMGET', P .. 'costs:' .. name, 'n', 'x', 'y', 'xx', 'xy')
  if not sums[1] or tonumber(sums[1]) < MEASURED_ENOUGH or tonumber(sums[2]) <= 0 then return nil end
  local n, x, y, xx, xy = unpack(sums)
  local spread = n * xx - x * x
  if spread <= 1e-9 * n * xx then return 0, xy / xx end
  local slope = (n * xy - x * y) / spread
  local base = (y - slope * x) / n
  if slope < 0 then return y / n, 0 end
  if base < 0 then return 0, xy / xx end
  return base, slope
end

-- Keep account of what waits, in items and in characters.
local function count_queued(engine, class, items, characters)
  for _, field in ipairs(class == 'interactive' and {engine, engine .. ':interactive'} or {engine}) do
    redis.call('HINCRBY', P .. 'queued_items', field, items)
    redis.call('HINCRBY', P .. 'queued_characters', field, characters)
  end
end

-- Keep account of what a tenant has waiting.
local function count_use(tenant, items, characters)
  redis.call('HINCRBY', use_key(tenant), 'queued_items', items)
  redis.call('HINCRBY', use_key(tenant), 'queued_characters', characters)
end

-- The refusal of so much more to wait where a tenant's caps leave no room for it.
local function check_caps(tenant, items, characters)
  for what, more in pairs({queued_items = items, queued_characters = characters}) do
    local cap = tonumber(redis.call('HGET', tenant_key(tenant), 'max_' .. what))
    local has = tonumber(redis.call('HGET', use_key(tenant), what)) or 0
    if cap and has + more > cap then
      return redis.error_reply(table.concat({'CAP', what, has, more, cap}, ' '))
    end
  end
end

-- Give back what a job that never went live had reserved of its tenant's caps.
local function unreserve(job)
  local fields = redis.call('HMGET', job_key(job), 'tenant', 'reserved_items', 'reserved_characters')
  count_use(fields[1], -fields[2], -fields[3])
end

local function count_waiting_of(job, engine, class, tenant, items, characters)
  count_queued(engine, class, items, characters)
  count_use(tenant, items, characters)
  redis.call('HINCRBY', job_key(job), 'waiting_characters:' .. engine, characters)
end

local function count_waiting(job, engine, items, characters)
  local whose = redis.call('HMGET', job_key(job), 'class', 'tenant')
  count_waiting_of(job, engine, whose[1], whose[2], items, characters)
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

local ENDED = {completed = true, failed = true, cancelled = true, expired = true}

local function is_terminal(status) return ENDED[status] == true end

local function move_item(job, index, state, status)
  redis.call('HINCRBY', job_key(job), state.status, -1)
  redis.call('HINCRBY', job_key(job), status, 1)
  state.status = status
  save_state(job, index, state)
end

local function listed_key(tenant, status) return P .. 'jobs:' .. tenant .. ':' .. status end

-- Every change of a job's state passes here: who is to be told of it is told from here.
local function move_job(job, status)
  local fields = redis.call('HMGET', job_key(job), 'status', 'bytes', 'tenant', 'seq', 'deleted')
  redis.call('ZREM', listed_key(fields[3], fields[1]), job)
  if not fields[5] then redis.call('ZADD', listed_key(fields[3], status), fields[4], job) end
  if is_terminal(status) ~= is_terminal(fields[1]) then
    redis.call('INCRBY', P .. 'queued_bytes', is_terminal(status) and -fields[2] or fields[2])
  end
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

-- What asks for no work on its end ends at once; the rest waits for a clerk.
local function finalize(job, succeeded, silence)
  move_job(job, 'finalizing')
  if succeeded > 0 and tonumber(silence) then
    redis.call('ZADD', P .. 'finalizing', stamp(), job)
  else
    end_job(job, succeeded > 0 and 'completed' or 'failed')
  end
end

-- Whether a clerk that took a job to be finalised still has it.
local function holds_join(job, number)
  local fields = redis.call('HMGET', job_key(job), 'status', 'joins')
  return fields[1] == 'finalizing' and fields[2] == number
end

-- A job that waited for a clerk ends.
local function end_finalizing(job)
  redis.call('ZREM', P .. 'finalizing', job)
  redis.call('HDEL', job_key(job), 'trouble', 'joins_lost')
  end_job(job, 'completed')
end

local function settle(job)
  local fields = redis.call('HMGET', job_key(job),
    'status', 'queued', 'in_progress', 'succeeded', 'ending', 'concatenate_silence_ms')
  if tonumber(fields[2]) > 0 or tonumber(fields[3]) > 0 then return end
  if fields[1] == 'cancelling' then
    end_job(job, fields[5])
  elseif fields[1] == 'in_progress' then
    finalize(job, tonumber(fields[4]), fields[6])
  end
end

-- A job's line: those of its tenant, engine, class and priority. In a line the fairness keys share.
local function line_name(engine, class, tenant, priority)
  return table.concat({engine, class, tenant, priority}, ':')
end

local function class_lists(engine) return {engine .. ':interactive', engine .. ':bulk'} end

-- Priorities of which a tenant has a line, the highest first.
local function lines_key(engine, class, tenant) return P .. 'lines:' .. line_name(engine, class, tenant, '') end

local function first_line(engine, class, tenant)
  local priority = redis.call('ZRANGE', lines_key(engine, class, tenant), 0, 0)[1]
  return priority and line_name(engine, class, tenant, priority)
end

local function place_of(job, engine)
  local fields = redis.call('HMGET', job_key(job), 'tenant', 'class', 'priority', 'fairness_key', 'seq')
  local tenant, class, priority, key = unpack(fields)
  local line = line_name(engine, class, tenant, priority)
  return {tenant = tenant, class = class, priority = priority, key = key, seq = fields[5], line = line,
    lines = lines_key(engine, class, tenant), waiting = P .. 'waiting:' .. line .. ':' .. key}
end

local function await_turn(job, engine)
  local place = place_of(job, engine)
  redis.call('ZADD', place.waiting, place.seq, job)
  redis.call('ZADD', P .. 'waiting:' .. engine, place.seq, job)
  enter(place.line, {place.line}, place.line, place.key)
  redis.call('ZADD', place.lines, -place.priority, place.priority)
  enter(engine, class_lists(engine), engine .. ':' .. place.class, place.tenant)
  if place.class == 'interactive' then redis.call('SET', P .. 'expects_interactive:' .. engine, 1, 'EX', 600) end
end

local function leave_turn(job, engine)
  local place = place_of(job, engine)
  redis.call('ZREM', P .. 'waiting:' .. engine, job)
  redis.call('ZREM', place.waiting, job)
  if redis.call('EXISTS', place.waiting) == 1 then return end
  leave(place.line, place.key)
  forget_finished(place.line)
  if redis.call('EXISTS', ready_key(place.line)) == 1 then return end
  redis.call('ZREM', place.lines, place.priority)
  if redis.call('EXISTS', place.lines) == 0 then leave(engine .. ':' .. place.class, place.tenant) end
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

-- Items whose pause is over go to the head of their queues, so many at once.
local function end_pauses(engine)
  local at, room = now(), 32
  local due = redis.call('ZRANGEBYSCORE', P .. 'delayed:' .. engine, '-inf', at, 'LIMIT', 0, 16)
  for _, job in ipairs(due) do
    local delayed = delayed_key(job, engine)
    for _, entry in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', at, 'LIMIT', 0, room)) do
      redis.call('ZREM', delayed, entry)
      redis.call('LPUSH', queue_key(job, engine), entry)
      room = room - 1
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

-- A tenant that was at its cap waits for its turn again.
local function unpark(tenant)
  local engines = redis.call('SMEMBERS', P .. 'parked:' .. tenant)
  if #engines == 0 then return end
  redis.call('DEL', P .. 'parked:' .. tenant)
  for _, engine in ipairs(engines) do
    for _, class in ipairs({'interactive', 'bulk'}) do
      if first_line(engine, class, tenant) then
        enter(engine, class_lists(engine), engine .. ':' .. class, tenant)
      end
    end
  end
end

-- A tenant was charged what a task was estimated to take. What it took is the time it held its slot,
-- or what its items say, should the clock have been set back; nothing when it never started.
local function seconds_taken(account)
  if account.status == 'admitted' then return 0 end
  if not account.started_at then return account.seconds end
  return math.max(now() - account.started_at, tonumber(account.spent) or 0)
end

local ACCOUNT = {'tenant', 'weight', 'items', 'seconds', 'line', 'key', 'status', 'started_at', 'spent', 'class', 'child'}

local function forget_task(task, job, engine)
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
      measure('voicemill_items_total', 'engine=' .. engine .. ',outcome=' .. status .. ',code=', waiting)
    end
  end
  stop_tasks(job)
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
