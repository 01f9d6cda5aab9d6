-- A join goes on. ARGV: job, number of the join, lease seconds. Returns 0 when another has the job, or none
-- uses: finalizing
local job = ARGV[1]
if not holds_join(job, ARGV[2]) then return 0 end
redis.call('HDEL', job_key(job), 'trouble')
await_join(job, tonumber(ARGV[3]))
return 1
