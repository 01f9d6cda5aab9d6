-- Close a task; what it did not start goes back as it was. ARGV: task, token, max attempts
if redis.call('HGET', task_key(ARGV[1]), 'token') ~= ARGV[2] then return 0 end
return release(ARGV[1], tonumber(ARGV[3]), 'worker_lost', 'The worker closed the task with this item in hand.')
