-- Take a job for its items' audio to be joined: the one that has been due longest of the tenant that was
-- served longest ago. ARGV: lease seconds
-- Returns nothing, or [job, number of this join, joins that were lost before it in this run, times that it
-- waited because of trouble]
-- uses: finalizing
local room = MOST_TOUCHED
local UNKNOWN_SECONDS = 10

local function first_due(tenant)
  for _, job in ipairs(redis.call('ZRANGEBYSCORE', finalizing_key(tenant), '-inf', now(), 'LIMIT', 0, room)) do
    local record = redis.call('HMGET', job_key(job), 'schema', 'status')
    if record[1] == '1' and record[2] == 'finalizing' then return job end
    if record[1] == '1' or not record[1] then
      redis.call('ZREM', finalizing_key(tenant), job)
    else
      -- Of a schema that we do not know: whoever knows it takes it, and it keeps none from its turn.
      redis.call('ZADD', finalizing_key(tenant), string.format('%.6f', now() + UNKNOWN_SECONDS), job)
    end
    room = room - 1
  end
end

for _, tenant in ipairs(redis.call('ZRANGEBYSCORE', P .. 'finalizing', '-inf', now(), 'LIMIT', 0, room)) do
  local job = room > 0 and first_due(tenant)
  if job then
    redis.call('HSET', P .. 'joined_at', tenant, stamp())
    await_join(job, tonumber(ARGV[1]))
    -- Lost, unless it ends or is given back.
    local lost = redis.call('HINCRBY', job_key(job), 'joins_lost', 1) - 1
    local waits = tonumber(redis.call('HGET', job_key(job), 'join_waits')) or 0
    return {job, redis.call('HINCRBY', job_key(job), 'joins', 1), lost, waits}
  end
  set_join_turn(tenant)
end
return nil
