-- 1 once, when the append-only file has held what was deleted for long enough.
-- uses: keys
local at = redis.call('GET', P .. 'rewrite_at')
if not at or tonumber(at) > now() then return 0 end
redis.call('DEL', P .. 'rewrite_at')
return 1
