-- Keep a running lease. ARGV: task, token, lease seconds. Returns held, stopping or lost
-- uses: jobs, lease
local record = redis.call('HMGET', task_key(ARGV[1]), 'token', 'job')
if record[1] ~= ARGV[2] then return 'lost' end
keep_lease(ARGV[1], ARGV[3])
return stopped_as(record[2]) and 'stopping' or 'held'
