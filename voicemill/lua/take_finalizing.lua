-- Take a job for its items' audio to be joined: the one that has been due longest of the tenant that was
-- served longest ago. ARGV: lease seconds
-- Returns nothing, or [job, number of this join, joins that were lost before it in this run, times that it
-- waited because of trouble]
local tenant = redis.call('ZRANGEBYSCORE', P .. 'finalizing', '-inf', now(), 'LIMIT', 0, 1)[1]
if not tenant then return nil end
local job = redis.call('ZRANGE', finalizing_key(tenant), 0, 0)[1]
if not job or redis.call('HGET', job_key(job), 'status') ~= 'finalizing' then
  redis.call('ZREM', finalizing_key(tenant), job or '')
  set_join_turn(tenant)
  return nil
end
redis.call('HSET', P .. 'joined_at', tenant, stamp())
await_join(job, tonumber(ARGV[1]))
-- Lost, unless it ends or is given back.
local lost = redis.call('HINCRBY', job_key(job), 'joins_lost', 1) - 1
local waits = tonumber(redis.call('HGET', job_key(job), 'join_waits')) or 0
return {job, redis.call('HINCRBY', job_key(job), 'joins', 1), lost, waits}
