-- A worker's parent says that it lives. ARGV: incarnation, node, lease seconds, record (JSON)
-- uses: keys
local expiry = now() + tonumber(ARGV[3])
redis.call('ZADD', P .. 'nodes', expiry, ARGV[1])
redis.call('ZADD', P .. 'workers', expiry, ARGV[2])
redis.call('SET', P .. 'worker:' .. ARGV[2], ARGV[4], 'PX', math.ceil(ARGV[3] * 1000))
return 1
