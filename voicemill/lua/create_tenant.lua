-- Keep a tenant and the hash of its key. ARGV: tenant, hash, weight, most running items, most queued items,
-- most queued characters (each of the three may be empty), limits of its items (JSON). Returns 0 if it has a key already
-- uses: keys
local tenant = tenant_key(ARGV[1])
if redis.call('HEXISTS', tenant, 'key') == 1 then return 0 end
redis.call('HSET', tenant, 'schema', 1, 'key', ARGV[2], 'weight', ARGV[3],
  'max_running_items', ARGV[4], 'max_queued_items', ARGV[5], 'max_queued_characters', ARGV[6],
  'limits', ARGV[7])
redis.call('SADD', P .. 'tenants', ARGV[1])
redis.call('HSET', P .. 'api_keys', ARGV[2], ARGV[1])
return 1
