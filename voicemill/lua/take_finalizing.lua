-- Take the job that has been due longest for its items' audio to be joined. ARGV: lease seconds
-- Returns nothing, or [job, number of this join, joins that were lost before it in this run]
-- uses: keys
local job = redis.call('ZRANGEBYSCORE', P .. 'finalizing', '-inf', now(), 'LIMIT', 0, 1)[1]
if not job then return nil end
if redis.call('HGET', job_key(job), 'status') ~= 'finalizing' then
  redis.call('ZREM', P .. 'finalizing', job)
  return nil
end
redis.call('ZADD', P .. 'finalizing', string.format('%.6f', now() + tonumber(ARGV[1])), job)
-- Lost, unless it ends or is given back.
local lost = redis.call('HINCRBY', job_key(job), 'joins_lost', 1) - 1
return {job, redis.call('HINCRBY', job_key(job), 'joins', 1), lost}
