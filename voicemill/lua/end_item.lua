-- The compare-and-set that publishes. Refused (0) to whoever no longer holds the item.
-- ARGV: task, token, index, outcome (succeeded, failed, returned, cancelled), body (JSON), max attempts,
-- retry seconds; to fail: "redraw" where other seeds may help; to succeed: decay of costs, job, "cached"
-- where nothing was spoken, and the first item that is to sound the same or ""
local task, index, outcome = ARGV[1], tonumber(ARGV[3]), ARGV[4]
-- The same call again, because its answer was lost, maybe after the task is gone: the file is
-- published and must stay.
if outcome == 'succeeded' then
  local state = load_state(ARGV[9], index)
  if state.status == 'succeeded' and state.task_id == task
    and state.audio.audio_path == cjson.decode(ARGV[5]).audio_path then return 1 end
end
local record = redis.call('HMGET', task_key(task), 'token', 'job', 'engine', 'entries')
if record[1] ~= ARGV[2] then return 0 end
local job, engine = record[2], record[3]
local state = load_state(job, index)
if state.status ~= 'in_progress' or state.task_id ~= task then return 0 end
local own
for _, entry in ipairs(cjson.decode(record[4])) do
  if parse(entry).index == index then own = entry end
end
local ending = stopped_as(job)
if ending or outcome == 'cancelled' then
  end_state(job, index, state, ending or 'cancelled', engine, '')
  settle(job)
  return 0
end
local body = cjson.decode(ARGV[5])
if outcome == 'returned' then
  state.attempts = state.attempts - 1
  state.error = body ~= cjson.null and body or nil
  move_item(job, index, state, 'queued')
  requeue(job, engine, own, parse(own).alone, tonumber(ARGV[7]))
elseif outcome == 'failed' then
  if ARGV[8] == 'redraw' then state.draws = (state.draws or 0) + 1 end
  fail_attempt(job, engine, own, state, body, tonumber(ARGV[6]), tonumber(ARGV[7]))
else
  local characters = parse(own).characters
  state.audio = body
  state.error = nil
  state.cached = ARGV[10] == 'cached' or nil
  end_state(job, index, state, 'succeeded', engine, '')
  redis.call('HINCRBYFLOAT', job_key(job), 'audio_seconds', body.duration_seconds)
  redis.call('HINCRBYFLOAT', job_key(job), 'device_seconds', body.device_seconds)
  redis.call('HINCRBY', job_key(job), 'done_characters', characters)
  if state.cached then
    redis.call('HINCRBY', job_key(job), 'cached', 1)
    measure('voicemill_cached_items_total', 'engine=' .. engine, 1)
  else
    measure('voicemill_audio_seconds_total', 'engine=' .. engine, body.duration_seconds)
    measure('voicemill_device_seconds_total', 'engine=' .. engine, body.device_seconds)
    measure('voicemill_synthesis_seconds_sum', 'engine=' .. engine, body.device_seconds)
    measure('voicemill_synthesis_seconds_count', 'engine=' .. engine, 1)
    redis.call('HINCRBYFLOAT', task_key(task), 'spent', body.device_seconds)
    observe_cost(engine, characters, body.device_seconds, tonumber(ARGV[8]))
    observe_cost(parse(own).key, characters, body.device_seconds, tonumber(ARGV[8]))
    if ARGV[11] ~= '' then redis.call('HSET', spoken_key(job), ARGV[11], index) end
  end
end
settle(job)
return 1
