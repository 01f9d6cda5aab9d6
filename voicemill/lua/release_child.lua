-- A child's process is gone. ARGV: child, engine, max attempts, retry seconds, code, message.
-- Returns 1 if it held a task
-- uses: failures
local child, engine = ARGV[1], ARGV[2]
redis.call('ZREM', P .. 'children', child)
for _, lane in ipairs({engine, unpack(redis.call('SMEMBERS', lanes_key(engine)))}) do
  redis.call('ZREM', P .. 'slots:' .. lane, child)
  redis.call('ZREM', P .. 'resting:' .. lane, child)
end
redis.call('DEL', P .. 'child:' .. child)
redis.call('HDEL', P .. 'recycle_orders', child)
redis.call('SREM', P .. 'draining', child)
local task = redis.call('HGET', P .. 'child_tasks', child)
if not task then return 0 end
redis.call('HDEL', P .. 'child_tasks', child)
return release(task, tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6])
