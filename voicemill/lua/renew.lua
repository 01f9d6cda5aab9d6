-- Keep a running lease. ARGV: task, token, lease seconds. Returns held, stopping or lost
-- uses: jobs
local record = redis.call('HMGET', task_key(ARGV[1]), 'token', 'job')
if record[1] ~= ARGV[2] then return 'lost' end
redis.call('ZADD', P .. 'running', 'XX', now() + tonumber(ARGV[3]), ARGV[1])
return stopped_as(record[2]) and 'stopping' or 'held'
