-- Give a job back to be finalised later. ARGV: job, number of the join, seconds until then,
-- what keeps it from being finalised or "", 1 if this join counts as lost
-- uses: finalizing
local job = ARGV[1]
if not holds_join(job, ARGV[2]) then return 0 end
await_join(job, tonumber(ARGV[3]))
if ARGV[4] ~= '' then
  redis.call('HSET', job_key(job), 'trouble', ARGV[4])
  redis.call('HINCRBY', job_key(job), 'join_waits', 1)
end
if ARGV[5] ~= '1' then redis.call('HINCRBY', job_key(job), 'joins_lost', -1) end
return 1
