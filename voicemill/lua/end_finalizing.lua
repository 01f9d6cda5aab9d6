-- The compare-and-set that publishes the joined audio of a job, or why there is none, and ends the job.
-- Refused (0) to whoever no longer has the job. ARGV: job, number of the join, body (JSON)
-- uses: finalizing
local job = ARGV[1]
-- The same call again, because its answer was lost: the file is published and must stay.
if redis.call('HGET', job_key(job), 'joined') == ARGV[2] then return 1 end
if not holds_join(job, ARGV[2]) then return 0 end
redis.call('HSET', job_key(job), 'concatenation', ARGV[3], 'joined', ARGV[2])
end_finalizing(job)
return 1
