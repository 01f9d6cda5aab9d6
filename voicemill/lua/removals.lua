-- Deleted jobs that have ended and are not removed yet; the next call begins behind those looked at, so
-- that none that can't be removed keeps the others from it. ARGV: limit
-- uses: jobs
local found = {}
for _, job in ipairs(redis.call('ZRANGE', P .. 'removals', 0, ARGV[1] - 1)) do
  redis.call('ZADD', P .. 'removals', stamp(), job)
  local status = redis.call('HGET', job_key(job), 'status')
  if not status or is_terminal(status) then table.insert(found, job) end
end
return found
