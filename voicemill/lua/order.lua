-- An operator asks something of a worker or a child. ARGV: id, recycle | drain | resume.
-- Returns 0 for one that was not heard of lately.
-- uses: keys
local id, order = ARGV[1], ARGV[2]
-- What drained and never came back can still be resumed.
local is_known = order == 'resume' and redis.call('SISMEMBER', P .. 'draining', id) == 1
for _, set in ipairs({'workers', 'children'}) do
  local expiry = redis.call('ZSCORE', P .. set, id)
  if expiry and tonumber(expiry) >= now() then is_known = true end
end
if not is_known then return 0 end
if order == 'recycle' then
  redis.call('HINCRBY', P .. 'recycle_orders', id, 1)
elseif order == 'drain' then
  redis.call('SADD', P .. 'draining', id)
else
  redis.call('SREM', P .. 'draining', id)
end
return 1
