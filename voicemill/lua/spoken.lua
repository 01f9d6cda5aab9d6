-- How far the audio is that items may share: of the one that was spoken last, else of the first.
-- ARGV: job, index of the first... Returns [index, state (JSON), seconds since it was last begun]...
-- uses: items
local job, found = ARGV[1], {}
for position = 2, #ARGV do
  local index = redis.call('HGET', spoken_key(job), ARGV[position]) or ARGV[position]
  local state = load_state(job, index)
  if state.status == 'queued' then
    -- What waited when its job was stopped is at its end, though nobody has touched it.
    state.status = redis.call('HGET', job_key(job), 'stop:' .. string.format('%d', state.run)) or 'queued'
  end
  local seconds = state.status == 'in_progress' and now() - state.started_at or 0
  table.insert(found, {tonumber(index), cjson.encode(state), string.format('%.6f', seconds)})
end
return found
