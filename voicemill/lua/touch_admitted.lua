-- Note that a task was sent again. ARGV: task. Returns 1 while it still waits to start
return redis.call('ZADD', P .. 'admitted', 'XX', 'CH', stamp(), ARGV[1])
