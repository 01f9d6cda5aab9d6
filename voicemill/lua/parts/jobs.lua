-- The states of jobs.
-- uses: keys

local ENDED = {completed = true, failed = true, cancelled = true, expired = true}

local function is_terminal(status) return ENDED[status] == true end

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

-- What items of a job end as that is stopping; false for one that is not.
local function stopped_as(job)
  local fields = redis.call('HMGET', job_key(job), 'status', 'run')
  local status = fields[1]
  if status ~= 'cancelling' and status ~= 'cancelled' and status ~= 'expired' then return false end
  return redis.call('HGET', job_key(job), 'stop:' .. fields[2])
end
