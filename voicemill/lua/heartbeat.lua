-- A child says that it lives. ARGV: child, engine, lease seconds, record (JSON), takes work (1 or 0)
local expiry = now() + tonumber(ARGV[3])
redis.call('ZADD', P .. 'children', expiry, ARGV[1])
redis.call('SET', P .. 'child:' .. ARGV[1], ARGV[4], 'PX', math.ceil(ARGV[3] * 1000))
if ARGV[5] == '1' then
  redis.call('ZADD', P .. 'slots:' .. ARGV[2], expiry, ARGV[1])
else
  redis.call('ZREM', P .. 'slots:' .. ARGV[2], ARGV[1])
end
return 1
