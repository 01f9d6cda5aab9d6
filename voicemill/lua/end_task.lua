-- Close a task; what it did not start goes back as it was. ARGV: task, token, max attempts,
-- retry seconds
-- uses: failures
if redis.call('HGET', task_key(ARGV[1]), 'token') ~= ARGV[2] then return 0 end
local message = 'The worker closed the task with this item in hand.'
return release(ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), 'worker_lost', message)
