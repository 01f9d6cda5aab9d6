-- Release running leases that ran out. ARGV: max attempts, retry seconds, limit
-- uses: failures
local due = redis.call('ZRANGEBYSCORE', P .. 'running', '-inf', now(), 'LIMIT', 0, ARGV[3])
local message = 'The worker was not heard of for as long as its lease.'
for _, task in ipairs(due) do
  release(task, tonumber(ARGV[1]), tonumber(ARGV[2]), 'worker_lost', message)
  redis.call('ZREM', P .. 'running', task)
end
if #due > 0 then measure('voicemill_leases_reaped_total', '', #due) end
return #due
