-- The compare-and-set that publishes an item's audio. Refused (0) to whoever no longer holds the item.
-- ARGV: task, token, index, audio (JSON), decay of costs, job, "cached" where nothing was spoken, and the first
-- item that is to sound the same or ""
-- uses: costs, figures, finalizing, items
local task, index, audio = ARGV[1], tonumber(ARGV[3]), cjson.decode(ARGV[4])
local job, lane, entry, state, revision = hold(task, ARGV[2], index)
if not job then
  -- The same call again, because its answer was lost, maybe after the task is gone: the file is
  -- published and must stay.
  local ended = load_state(ARGV[6], index)
  local is_ours = ended.status == 'succeeded' and ended.task_id == task
  return is_ours and ended.audio.audio_path == audio.audio_path and 1 or 0
end
local ending = stopped_as(job)
if ending then
  end_state(job, index, state, ending, lane, '')
  settle(job)
  return 0
end
local engine, characters, key = engine_of(lane), parse(entry).characters, parse(entry).key
state.audio = audio
state.error = nil
state.cached = ARGV[7] == 'cached' or nil
end_state(job, index, state, 'succeeded', engine, '')
redis.call('HINCRBYFLOAT', job_key(job), 'audio_seconds', audio.duration_seconds)
redis.call('HINCRBYFLOAT', job_key(job), 'device_seconds', audio.device_seconds)
redis.call('HINCRBY', job_key(job), 'done_characters', characters)
if state.cached then
  redis.call('HINCRBY', job_key(job), 'cached', 1)
  measure('voicemill_cached_items_total', 'engine=' .. engine, 1)
else
  measure('voicemill_audio_seconds_total', 'engine=' .. engine, audio.duration_seconds)
  measure('voicemill_device_seconds_total', 'engine=' .. engine, audio.device_seconds)
  measure('voicemill_synthesis_seconds_sum', 'engine=' .. engine, audio.device_seconds)
  measure('voicemill_synthesis_seconds_count', 'engine=' .. engine, 1)
  redis.call('HINCRBYFLOAT', task_key(task), 'spent', audio.device_seconds)
  if revision then count_attempt(engine, revision, nil, audio.duration_seconds, audio.device_seconds) end
  observe_cost(engine, characters, audio.device_seconds, tonumber(ARGV[5]))
  observe_cost(key, characters, audio.device_seconds, tonumber(ARGV[5]))
  if ARGV[8] ~= '' then redis.call('HSET', spoken_key(job), ARGV[8], index) end
end
settle(job)
return 1
