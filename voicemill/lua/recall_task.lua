-- Put what an admitted task carries back in its queue: its message is nowhere. ARGV: task.
-- Returns 1, or 0 for one that has started or is gone
-- uses: failures
if redis.call('HGET', task_key(ARGV[1]), 'status') ~= 'admitted' then return 0 end
return release(ARGV[1], 0, 0, '', '')
