-- Whose audio an item may share, and how far that one is: the first that is to sound so, or the one that
-- has taken its place. Where that one has ended without audio, who asks takes its place and is to be spoken;
-- but not after two in a row that failed for good by what no further attempt mends, or kills children.
-- ARGV: job, task, index of who asks, index of the first. Returns [index, state (JSON), seconds]: since it was
-- begun, or until it may be
-- uses: items
local job, task, index, first = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local KILLS = {worker_lost = true, synthesis_timeout = true, engine_poisoned = true, engine_lost = true}

local function answer(which, state)
  local seconds = 0
  if state.status == 'in_progress' then seconds = now() - state.started_at end
  if state.status == 'queued' then seconds = math.max(0, (state.again_at or 0) - now()) end
  return {tonumber(which), cjson.encode(state), string.format('%.6f', seconds)}
end

local other = redis.call('HGET', spoken_key(job), first) or first
local state = load_state(job, other)
state.status = status_of(job, state)
if other == index or state.status == 'succeeded' or state.status == 'queued' or state.status == 'in_progress' then
  return answer(other, state)
end
local lasts = state.status == 'failed' and (not state.error.retryable or KILLS[state.error.code] == true)
local own = load_state(job, index)
if (lasts and state.confirms) or own.status ~= 'in_progress' or own.task_id ~= task then
  return answer(other, state)
end
own.confirms = lasts or nil
save_state(job, index, own)
redis.call('HSET', spoken_key(job), first, index)
return answer(index, own)
