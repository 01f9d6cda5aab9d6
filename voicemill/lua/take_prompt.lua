-- Take the prompt that has waited for longest; nobody else is given it for as long as the lease.
-- ARGV: lease seconds. Returns nil or [tenant, name, how often it was taken]
-- uses: voices
local due = redis.call('ZRANGEBYSCORE', P .. 'prompts', '-inf', now(), 'LIMIT', 0, 1)[1]
if not due then return nil end
local tenant, name = string.match(due, '^([^/]+)/(.+)$')
redis.call('ZADD', P .. 'prompts', now() + tonumber(ARGV[1]), due)
return {tenant, name, redis.call('HINCRBY', voice_key(tenant, name), 'tries', 1)}
