-- 1 when the append-only file has held what was deleted for long enough, until it is being rewritten.
-- uses: keys
local at = redis.call('GET', P .. 'rewrite_at')
if at and tonumber(at) <= now() then
  redis.call('DEL', P .. 'rewrite_at')
  -- What is deleted from now on plans a rewrite of its own.
  redis.call('SET', P .. 'rewrite_owed', 1)
end
return redis.call('EXISTS', P .. 'rewrite_owed')
