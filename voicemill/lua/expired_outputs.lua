-- Jobs whose audio and texts have been kept for long enough; from now on they count as removed. The next
-- call begins behind them, so that none that can't be removed keeps the others from it. ARGV: limit
-- uses: keys
local due = redis.call('ZRANGEBYSCORE', P .. 'expiries', '-inf', now(), 'LIMIT', 0, ARGV[1])
for _, job in ipairs(due) do
  redis.call('HSET', job_key(job), 'data_removed', 1)
  redis.call('ZADD', P .. 'expiries', stamp(), job)
end
return due
