-- A clerk says that it lives, and drops who has been silent, a silent worker's unacked messages too.
-- ARGV: clerk, lease seconds
-- uses: keys
local at = now()
redis.call('ZADD', P .. 'clerks', at + tonumber(ARGV[2]), ARGV[1])
redis.call('ZREMRANGEBYSCORE', P .. 'clerks', '-inf', at)
redis.call('ZREMRANGEBYSCORE', P .. 'children', '-inf', at)
redis.call('ZREMRANGEBYSCORE', P .. 'workers', '-inf', at)
for _, node in ipairs(redis.call('ZRANGEBYSCORE', P .. 'nodes', '-inf', at)) do
  redis.call('DEL', node, node .. ':index', node .. ':mutex')
  redis.call('ZREM', P .. 'nodes', node)
end
for _, engine in ipairs(all_lanes()) do
  redis.call('ZREMRANGEBYSCORE', P .. 'slots:' .. engine, '-inf', at)
  redis.call('ZREMRANGEBYSCORE', P .. 'resting:' .. engine, '-inf', at)
end
return 1
