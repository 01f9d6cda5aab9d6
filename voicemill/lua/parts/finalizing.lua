-- How a job ends once all of its items have.
-- uses: jobs

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
