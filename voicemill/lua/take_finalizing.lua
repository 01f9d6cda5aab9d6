-- Take the job that has been due longest for its items' audio to be joined. ARGV: lease seconds
-- Returns nothing, or [job, number of this join, joins that were lost before it in this run]
-- uses: keys
for _, job in ipairs(redis.call('ZRANGEBYSCORE', P .. 'finalizing', '-inf', now(), 'LIMIT', 0, MOST_TOUCHED)) do
  local record = redis.call('HMGET', job_key(job), 'schema', 'status')
  if record[1] == '1' and record[2] == 'finalizing' then
    redis.call('ZADD', P .. 'finalizing', string.format('%.6f', now() + tonumber(ARGV[1])), job)
    -- Lost, unless it ends or is given back.
    local lost = redis.call('HINCRBY', job_key(job), 'joins_lost', 1) - 1
    return {job, redis.call('HINCRBY', job_key(job), 'joins', 1), lost}
  elseif record[1] == '1' or not record[1] then
    redis.call('ZREM', P .. 'finalizing', job)
  end
end
return nil
