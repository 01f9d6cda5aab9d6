-- Take its key from a tenant. ARGV: tenant. Returns 0 if it has none
-- uses: keys
local hash = redis.call('HGET', tenant_key(ARGV[1]), 'key')
if not hash then return 0 end
redis.call('HDEL', tenant_key(ARGV[1]), 'key')
return redis.call('HDEL', P .. 'api_keys', hash)
