-- Give a job back to be finalised later. ARGV: job, number of the join, seconds until then,
-- what keeps it from being finalised or "", 1 if this join counts as lost
-- uses: finalizing
local job = ARGV[1]
if not holds_join(job, ARGV[2]) then return 0 end
redis.call('ZADD', P .. 'finalizing', string.format('%.6f', now() + tonumber(ARGV[3])), job)
if ARGV[4] ~= '' then redis.call('HSET', job_key(job), 'trouble', ARGV[4]) end
if ARGV[5] ~= '1' then redis.call('HINCRBY', job_key(job), 'joins_lost', -1) end
return 1
