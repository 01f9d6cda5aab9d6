-- A worker's parent says that it lives. ARGV: incarnation, lease seconds
redis.call('ZADD', P .. 'nodes', now() + tonumber(ARGV[2]), ARGV[1])
return 1
