-- A worker's parent ends: its name is free, and what it has unacknowledged is the clerk's to drop.
-- ARGV: incarnation, node, claim
-- uses: keys
redis.call('ZADD', P .. 'nodes', 'XX', 0, ARGV[1])
if redis.call('GET', P .. 'name:' .. ARGV[2]) == ARGV[3] then
  redis.call('DEL', P .. 'name:' .. ARGV[2], P .. 'worker:' .. ARGV[2])
  redis.call('ZREM', P .. 'workers', ARGV[2])
end
return 1
