-- How a job ends once all of its items have.
-- uses: jobs

-- Jobs of a tenant that wait for a clerk to join their audio, by when they are due.
local function finalizing_key(tenant) return P .. 'finalizing:' .. tenant end

-- A tenant's turn comes once its first job is due, after those who were served before it.
local function set_join_turn(tenant)
  local first = redis.call('ZRANGE', finalizing_key(tenant), 0, 0, 'WITHSCORES')
  if not first[1] then
    redis.call('ZREM', P .. 'finalizing', tenant)
    redis.call('HDEL', P .. 'joined_at', tenant)
    return
  end
  local served_at = redis.call('HGET', P .. 'joined_at', tenant) or 0
  redis.call('ZADD', P .. 'finalizing', string.format('%.6f', math.max(first[2], served_at)), tenant)
end

-- A job waits so many seconds for a clerk.
local function await_join(job, seconds)
  local tenant = redis.call('HGET', job_key(job), 'tenant')
  redis.call('ZADD', finalizing_key(tenant), string.format('%.6f', now() + seconds), job)
  set_join_turn(tenant)
end

-- What asks for no work on its end ends at once; the rest waits for a clerk.
local function finalize(job, succeeded, silence)
  move_job(job, 'finalizing')
  if succeeded > 0 and tonumber(silence) then
    await_join(job, 0)
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
  local tenant = redis.call('HGET', job_key(job), 'tenant')
  redis.call('ZREM', finalizing_key(tenant), job)
  set_join_turn(tenant)
  redis.call('HDEL', job_key(job), 'trouble', 'joins_lost', 'join_waits')
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
