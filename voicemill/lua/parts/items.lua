-- The states of items. One without a record in `states` is queued and was never tried.
-- A queue entry is "index \t characters \t batch_key \t alone".
-- uses: keys

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

-- What an item reads as: one that waited when its job was stopped is at its end, though nobody has touched it.
local function status_of(job, state)
  if state.status ~= 'queued' then return state.status end
  return redis.call('HGET', job_key(job), 'stop:' .. string.format('%d', state.run)) or 'queued'
end

-- Attempts of an item in this run of its job.
local function tries(state) return state.attempts - (state.base or 0) end

local function save_state(job, index, state)
  redis.call('HSET', states_key(job), index, cjson.encode(state))
end

local function move_item(job, index, state, status)
  redis.call('HINCRBY', job_key(job), state.status, -1)
  redis.call('HINCRBY', job_key(job), status, 1)
  state.status = status
  save_state(job, index, state)
end

local function end_state(job, index, state, status, engine, code)
  state.completed_at = now()
  move_item(job, index, state, status)
  measure('voicemill_items_total', 'engine=' .. engine_of(engine) .. ',outcome=' .. status .. ',code=' .. code, 1)
end

-- True once a task has begun an item. If that item is queued now it went back by itself,
-- maybe to run and fail in another task meanwhile; this task has no hold on it any more.
local function has_begun(task, index)
  return redis.call('HEXISTS', task_key(task), 'begun:' .. index) == 1
end

-- The item that a task has in hand, by job, engine, queue entry, state and the revision that is counted; nothing
-- where it has not, any more.
local function hold(task, token, index)
  local record = redis.call('HMGET', task_key(task), 'token', 'job', 'engine', 'entries', 'revision')
  if record[1] ~= token then return nil end
  local state = load_state(record[2], index)
  if state.status ~= 'in_progress' or state.task_id ~= task then return nil end
  for _, entry in ipairs(cjson.decode(record[4])) do
    if parse(entry).index == index then return record[2], record[3], entry, state, record[5] end
  end
end
